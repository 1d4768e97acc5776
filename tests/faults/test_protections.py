"""Take each protection out of a copy of the project: the test that stands for it must fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.protections import PROTECTIONS, Protection

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("apps", "static", "templates", "tests", "trainops", "manage.py", "pyproject.toml")
SOME_FAILED = 1  # pytest's exit code; others say that nothing could be tested


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    copy = tmp_path_factory.mktemp("bare")
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "vendor")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda each: each.name)
def test_the_table_knows_the_code(protection: Protection):
    path, *names = protection.test.split("::")
    assert (ROOT / protection.path).read_text().count(protection.protected) == 1
    tests = (ROOT / path).read_text()
    assert all(f" {name.split('[')[0]}(" in tests or f" {name}:" in tests for name in names)


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda each: each.name)
def test_without_it_its_test_fails(copy, protection: Protection):
    path = copy / protection.path
    whole = path.read_text()
    path.write_text(whole.replace(protection.protected, protection.bare))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, protection.test], cwd=copy, capture_output=True, text=True, check=False
        )
    finally:
        path.write_text(whole)
    assert done.returncode == SOME_FAILED, done.stdout[-3000:]
