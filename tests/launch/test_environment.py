"""The environment: what is installed, when it is installed again, and what is pinned."""

import json
import re
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trainops.launch import environment, hashes
from trainops.launch.refusal import CannotStart

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = """
[project]
name = "sample"
version = "1"
dependencies = ["one>=1", "two"]
[project.optional-dependencies]
test = ["three"]
"""


HASH = f"sha256:{'1' * 64}"
HASHES = f"""# a comment
one==1 \\
    --hash={HASH}
two==2.0 \\
    --hash=sha256:{"2" * 64} \\
    --hash=sha256:{"3" * 64}
"""
# Writes what pip was called with, and the report that it is asked for.
PIP = """#!/bin/sh
echo "$@" >> "$0.called"
while [ $# -gt 0 ]; do
    [ "$1" = --report ] && cp "$(dirname "$0")/report.json" "$2"
    [ "$1" = -r ] && cat "$2" >> "$0.called"
    shift
done
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {normal(name): version for name, _, version in pins}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "constraints.txt").write_text("one==1\n")
    (tmp_path / "hashes.txt").write_text(HASHES)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    return tmp_path


def stamp(project: Path, extras: list[str]) -> None:
    content = {"digest": environment.digest(project), "extras": extras}
    (project / ".venv" / "trainops-stamp.json").write_text(json.dumps(content))


def installed_for(requirements: list[str]) -> set[str]:
    """Every distribution that is here because one of these asks for it, directly or not."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted, extra = waiting.pop()
        key = (normal(wanted.name), frozenset(wanted.extras))
        is_wanted = wanted.marker is None or wanted.marker.evaluate({"extra": extra})
        if not is_wanted or key in seen:
            continue
        seen.add(key)
        found.add(key[0])
        for text in distribution(wanted.name).requires or []:
            waiting += [(Requirement(text), each) for each in ("", *wanted.extras)]
    return found


@pytest.mark.slow
def test_everything_that_the_project_installs_is_pinned_to_the_installed_version():
    pins = constraints()
    wanted = installed_for(environment.requirements(ROOT, ["test"]))
    assert len(wanted) > 100  # dependencies of dependencies were followed
    # The local suffix of torch says which build it is, not which version.
    versions = {name: Version(distribution(name).version).public for name in wanted}
    assert versions == {name: pins.get(name, "no pin") for name in wanted}


@pytest.mark.slow
def test_everything_that_the_project_installs_allows_the_oldest_python_of_the_project():
    oldest = environment.project(ROOT)["requires-python"].removeprefix(">=") + ".0"
    allowed = {
        name: distribution(name).metadata.get("Requires-Python", "")
        for name in installed_for(environment.requirements(ROOT, ["test"]))
    }
    refusing = {name: each for name, each in allowed.items() if oldest not in SpecifierSet(each)}
    assert refusing == {}


def test_constraints_are_exact_versions_from_no_particular_place():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert not line or line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+", line), line
    assert constraints()["torch"] == "2.13.0"


def test_every_requirement_of_the_project_is_pinned_to_a_version_that_it_allows():
    pins = constraints()
    for text in environment.requirements(ROOT, ["test"]):
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[normal(requirement.name)]), text


def test_requirements_are_those_of_the_project_and_of_the_extras(project):
    assert environment.requirements(project, []) == ["one>=1", "two"]
    assert environment.requirements(project, ["test"]) == ["one>=1", "two", "three"]
    with pytest.raises(CannotStart, match="no extra dev"):
        environment.requirements(project, ["dev"])


def test_a_matching_stamp_spares_the_installation(project):
    stamp(project, ["test"])
    venv = project / ".venv"
    assert environment.is_current(project, venv, [])
    assert environment.is_current(project, venv, ["test"])
    environment.ensure(project / "log", extras=["test"], root=project, venv=venv)
    assert not (project / "log").exists()


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_either_file_asks_for_an_installation(project, name):
    stamp(project, [])
    with (project / name).open("a") as file:
        file.write("# changed\n")
    assert not environment.is_current(project, project / ".venv", [])


def test_a_missing_extra_a_torn_stamp_or_a_lost_interpreter_ask_for_an_installation(project):
    venv = project / ".venv"
    stamp(project, [])
    assert not environment.is_current(project, venv, ["test"])
    (venv / "bin" / "python").unlink()
    assert not environment.is_current(project, venv, [])
    (venv / "bin" / "python").touch()
    (venv / "trainops-stamp.json").write_text('{"digest": ')
    assert not environment.is_current(project, venv, [])


def test_a_failed_installation_shows_its_last_lines_and_leaves_no_stamp(project):
    venv = project / ".venv"
    (venv / "bin" / "python").write_text(
        "#!/bin/sh\necho Collecting one\necho 'OSError: [Errno 28] No space left on device'\nexit 1"
    )
    (venv / "bin" / "python").chmod(0o755)
    with pytest.raises(CannotStart) as failure:
        environment.ensure(project / "log", root=project, venv=venv)
    message = str(failure.value)
    assert "  | OSError: [Errno 28] No space left on device" in message
    assert message.endswith("free some space and run the same command again.")
    assert not (venv / "trainops-stamp.json").exists()


def pip_that_chooses(project, *chosen: tuple[str, str], digest="", needs=()) -> Path:
    """Replace the interpreter; return the file of what it is called with.

    `digest`: SHA-256 of each file, as pip reports it; `needs`: what each distribution requires.
    """
    folder = project / ".venv" / "bin"
    install = [
        {
            "metadata": {"name": name, "version": version, "requires_dist": list(needs)},
            "download_info": {"archive_info": {"hashes": {"sha256": digest}}},
        }
        for name, version in chosen
    ]
    (folder / "report.json").write_text(json.dumps({"install": install}))
    (folder / "python").write_text(PIP)
    (folder / "python").chmod(0o755)
    return folder / "python.called"


def test_only_what_has_hashes_is_installed_each_file_compared(project):
    called = pip_that_chooses(project, ("One", "1"), ("two", "2.0+cpu"), digest="3" * 64)
    environment.ensure(project / "log", root=project, venv=project / ".venv")
    choice, install, *wanted = called.read_text().splitlines()
    assert "--dry-run" in choice and f"-c {project / 'constraints.txt'} one>=1 two" in choice
    assert "--no-deps --require-hashes -r" in install and "--dry-run" not in install
    assert wanted == [
        f"One==1 --hash={HASH}",
        f"two==2.0+cpu --hash=sha256:{'2' * 64} --hash=sha256:{'3' * 64}",
    ]


@pytest.mark.parametrize("digest", ["", "4" * 64])
def test_a_build_of_another_index_is_installed_and_named(project, capsys, digest):
    """An index that the user configured, as that of PyTorch for another Python or for CUDA."""
    called = pip_that_chooses(project, ("one", "1"), ("two", "2.0+cu126"), digest=digest)
    environment.ensure(project / "log", root=project, venv=project / ".venv")
    *_, wanted, install = called.read_text().splitlines()
    assert wanted == f"one==1 --hash={HASH}"
    assert install.endswith("--no-deps two==2.0+cu126") and "--require-hashes" not in install
    said = capsys.readouterr().out
    assert said.count("Installed without a comparison of hashes: two==2.0+cu126\n") == 1


@pytest.mark.parametrize("extras", [[], ["gcs"]])
@pytest.mark.parametrize("chosen", [("two", "3.0"), ("two", "3.0+cu126"), ("intruder", "1")])
def test_what_has_no_hashes_is_not_installed(project, chosen, extras):
    with (project / "pyproject.toml").open("a") as file:
        file.write('gcs = ["bucket"]\n')
    called = pip_that_chooses(project, ("one", "1"), chosen)
    with pytest.raises(CannotStart, match=re.escape(f"no hashes of {chosen[0]}=={chosen[1]},")):
        environment.ensure(project / "log", extras=extras, root=project, venv=project / ".venv")
    assert len(called.read_text().splitlines()) == 1  # it was asked what it would install
    assert not (project / ".venv" / "trainops-stamp.json").exists()


def test_extras_that_are_not_pinned_are_installed_without_hashes(project):
    with (project / "pyproject.toml").open("a") as file:
        file.write('gcs = ["bucket"]\n')
    chosen = [("one", "1"), ("bucket", "7"), ("cloud", "8")]
    called = pip_that_chooses(project, *chosen, needs=["two>=1", "Cloud[x]>=3; extra == 'y'"])
    environment.ensure(project / "log", extras=["gcs"], root=project, venv=project / ".venv")
    assert called.read_text().splitlines()[-1].endswith("--no-deps bucket==7 cloud==8")


def test_nothing_is_installed_without_the_file_of_hashes(project):
    (project / "hashes.txt").unlink()
    called = pip_that_chooses(project, ("one", "1"))
    with pytest.raises(CannotStart, match=r"hashes.txt cannot be read"):
        environment.ensure(project / "log", root=project, venv=project / ".venv")
    assert not called.exists()


def test_everything_that_is_pinned_has_hashes():
    found = hashes.read(ROOT)
    assert dict(list(found)) == constraints()
    assert all(len({*each}) == len(each) >= 1 for each in found.values())


def test_an_installation_is_stamped_and_keeps_the_extras_of_the_one_before(project, capsys):
    venv = project / ".venv"
    pip_that_chooses(project, ("one", "1"))
    stamp(project, ["test"])
    (project / "constraints.txt").write_text("one==2\n")
    environment.ensure(project / "log", root=project, venv=venv)
    called = (venv / "bin" / "python.called").read_text()
    assert f"-c {project / 'constraints.txt'} one>=1 two three" in called
    assert environment.is_current(project, venv, ["test"])
    assert capsys.readouterr().out.count("\n") == 3  # what is chosen, installed, and the end


def test_the_progress_of_pip_is_one_phrase(tmp_path):
    log = tmp_path / "install.log"
    log.write_text("")
    assert environment._progress(log) == "looking …"
    log.write_text("Collecting one>=1 (from x)\nCollecting two\n")
    assert environment._progress(log) == "2 found, two …"
    with log.open("a") as file:
        file.write("Installing collected packages: one, two, three\n")
    assert environment._progress(log) == "installing 3 packages …"
