"""Take each protection out of a copy of the project: the test that stands for it must fail."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.protections import PROTECTIONS, Protection
from tests.faults.taking_out import without

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
    source = (ROOT / protection.path).read_text()
    bare = protection.taken_out_of(source)
    assert bare != source
    compile(bare, protection.path, "exec")
    tests = (ROOT / path).read_text()
    assert all(f" {name.split('[')[0]}(" in tests or f" {name}:" in tests for name in names)


SOURCE = """
class Purse:
    def spend(self, money):
        if money < 0:  # nobody earns by it
            raise ValueError
        self.left -= money

    def earn(self, money):
        self.left += money
        if money < 0:
            raise ValueError
"""


@pytest.mark.parametrize(
    "source", [SOURCE, f"import math{SOURCE}", SOURCE.replace("money < 0", "money\\\n    < 0")]
)
def test_what_is_taken_out_is_found_by_its_function_wherever_it_stands(source):
    bare = without(source, "Purse.spend", "if money < 0: raise ValueError", "")
    found: dict[str, Any] = {}
    exec(bare, found)  # noqa: S102 - the few lines above
    purse = found["Purse"]()
    purse.left = 1
    purse.spend(-1)
    assert purse.left == 2
    with pytest.raises(ValueError, match=r"^$"):
        purse.earn(-1)


@pytest.mark.parametrize(
    ("function", "protected"),
    [("Purse.lend", "money"), ("Purse.spend", "money"), ("Purse.spend", "+= money")],
)
def test_what_is_not_there_once_is_not_taken_out(function, protected):
    with pytest.raises(LookupError, match="Purse"):
        without(SOURCE, function, protected, "")


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda each: each.name)
def test_without_it_its_test_fails(copy, protection: Protection):
    path = copy / protection.path
    whole = path.read_text()
    path.write_text(protection.taken_out_of(whole))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, protection.test], cwd=copy, capture_output=True, text=True, check=False
        )
    finally:
        path.write_text(whole)
    assert done.returncode == SOME_FAILED, done.stdout[-3000:]
