"""The software bill of materials names what is installed, and what is vendored."""

import hashlib
import json
from importlib.metadata import distributions, version

import pytest

from trainops import paths
from trainops.launch.sbom import document, sbom


@pytest.fixture(scope="module")
def found():
    return document(distributions())


def test_every_installed_distribution_is_in_it_once(found):
    purls = [each["purl"] for each in found["components"]]
    assert len(purls) == len({*purls})
    assert f"pkg:pypi/django@{version('Django')}" in purls
    assert f"pkg:pypi/torch@{version('torch').replace('+', '%2B')}" in purls
    assert not any(each.startswith("pkg:pypi/trainops@") for each in purls)
    assert found["metadata"]["component"]["name"] == "trainops"


def test_dependencies_refer_to_components(found):
    refs = {each["bom-ref"] for each in found["components"]}
    refs.add(found["metadata"]["component"]["bom-ref"])
    needs = {each["ref"]: each["dependsOn"] for each in found["dependencies"]}
    assert all({ref, *others} <= refs for ref, others in needs.items())
    django = next(ref for ref in needs if ref.startswith("pkg:pypi/django@"))
    assert any(each.startswith("pkg:pypi/sqlparse@") for each in needs[django])
    assert not any(each.startswith("pkg:pypi/argon2") for each in needs[django])  # an extra


def test_licences_are_named(found):
    licences = {each["name"]: each.get("licenses") for each in found["components"]}
    assert "BSD" in json.dumps(licences["Django"])
    assert sum(1 for each in licences.values() if not each) < len(licences) / 10


def test_vendored_files_are_named_with_the_hashes_that_they_have(found):
    folder = paths.STATIC / "vendor"
    npm = [each for each in found["components"] if each["purl"].startswith("pkg:npm/")]
    assert {each["name"] for each in npm} == {
        "bootstrap", "htmx.org", "uplot", "@tabler/core", "@fontsource-variable/inter"
    }  # fmt: skip
    assert "pkg:npm/%40tabler/core@1.6.1" in {each["purl"] for each in npm}
    for each in (file for package in npm for file in package["components"]):
        path = folder / each["bom-ref"].removeprefix("static/vendor/")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == each["hashes"][0]["content"]


def test_the_command_writes_it(tmp_path, capsys):
    target = tmp_path / "sbom.json"
    assert sbom(["--out", str(target)]) == 0
    assert json.loads(target.read_text())["bomFormat"] == "CycloneDX"
    assert capsys.readouterr().out == ""
