"""Take each protection out of a copy of the project: the test that stands for it must fail."""

from typing import Any

import pytest

from tests.faults.copying import ROOT, SOME_FAILED, copy_project, run_changed
from tests.faults.defences import DEFENCES
from tests.faults.protections import PROTECTIONS, Protection
from tests.faults.taking_out import without
from tests.thinning import quick_some

ALL = [*PROTECTIONS, *DEFENCES]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return copy_project(tmp_path_factory.mktemp("bare"))


@pytest.mark.whole
@pytest.mark.parametrize("protection", quick_some(ALL, every=10), ids=lambda each: each.name)
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
@pytest.mark.parametrize("protection", ALL, ids=lambda each: each.name)
def test_without_it_its_test_fails(copy, protection: Protection):
    bare = protection.taken_out_of((copy / protection.path).read_text())
    done = run_changed(copy, protection.path, bare, [protection.test])
    assert done.returncode == SOME_FAILED, done.stdout[-3000:]
