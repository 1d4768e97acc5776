"""A clone needs no installation: its own entry points are those of pyproject.toml."""

import tomllib
from pathlib import Path

import pytest

from trainops.registrations import registered

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
GROUP = "trainops.kinds"


def installed(directory, name, points):
    """Put the metadata of an installed package into a directory."""
    metadata = directory / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_kinds_of_the_clone_come_first_and_those_of_packages_after(packages):
    installed(packages, "others", "evaluation = others:KIND")
    own = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"][GROUP]
    found = {each.name: each.value for each in registered(GROUP)}
    assert list(found.items()) == [*own.items(), ("evaluation", "others:KIND")]


def test_what_an_older_installation_of_the_clone_says_is_not_read(packages):
    installed(packages, "trainops", "training = trainops.moved.long.ago:KIND")
    assert all("moved" not in each.value for each in registered(GROUP))
