"""Plant each fault in a copy of the project: the tests that are named for it must fail."""

import pytest

from tests.faults.copying import ROOT, SOME_FAILED, copy_project, run_changed
from tests.faults.planted import FAULTS, MODULES, Fault
from tests.thinning import quick_some

KINDS = ROOT / "trainops" / "kinds"
every_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.name)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return copy_project(tmp_path_factory.mktemp("planted"))


@pytest.mark.whole
@pytest.mark.parametrize("fault", quick_some(FAULTS, every=10), ids=lambda each: each.name)
def test_the_table_knows_the_code(fault: Fault):
    source = (ROOT / fault.path).read_text()
    wrong = fault.planted_in(source)
    assert wrong != source
    compile(wrong, fault.path, "exec")
    for test in fault.tests:
        path, *names = test.split("::")
        tests = (ROOT / path).read_text()
        assert all(f"def {name.split('[')[0]}(" in tests for name in names), test


def test_every_part_of_the_engines_has_faults():
    assert {fault.module for fault in FAULTS} == MODULES.keys()
    paths = [ROOT / fault.path for fault in FAULTS]
    engines = [each.parent for each in KINDS.glob("*/job.py")]  # the other kinds have no engine
    without = {each.name for each in engines if not any(each in path.parents for path in paths)}
    assert len(engines) >= 5 and not without
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@every_fault
def test_a_planted_fault_is_caught(copy, fault: Fault):
    wrong = fault.planted_in((copy / fault.path).read_text())
    done = run_changed(copy, fault.path, wrong, fault.tests)
    assert done.returncode == SOME_FAILED, done.stdout[-3000:]
