"""A short storm on both installations; `python3 -m trainops chaos` makes longer ones."""

import pytest

from tests.faults.installations import NEIGHBOUR, one_machine, two_machines
from tests.faults.storm import Storm
from tests.thinning import some_of

pytestmark = [pytest.mark.faults, pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(900)]
NUM_FAULTS = 4
both = pytest.mark.parametrize("start", [two_machines, one_machine])


@pytest.mark.parametrize(("start", "seed"), some_of([(two_machines, 2), (one_machine, 1)], every=2))
def test_nothing_is_lost_and_nothing_is_done_twice(start, seed):
    with start() as installation:
        storm = Storm(installation, seed)
        storm.run(num_faults=NUM_FAULTS)
        print(f"seed {seed}: {dict(storm.counts)}")  # noqa: T201 - shown when it fails
        assert storm.violations == []


@pytest.mark.exhaustive
@both
def test_what_runs_during_a_rolling_upgrade_continues_exactly(start):
    """`SHUTDOWN` alone explains how attempts may end. A program that stays is a violation."""
    with start() as installation:
        storm = Storm(installation, 1, names=["often", "loop"], faults=["rolling upgrade"])
        storm.run(num_faults=1)
        assert storm.violations == []
        assert {each["capabilities"]["trainops"] for each in storm.stack.get("workers")} == {
            NEIGHBOUR
        }
        installation.change_version()
        assert len(list(storm.older_programs())) == len(installation.programs()) == 4


@pytest.mark.exhaustive
@both
def test_what_runs_at_a_backup_continues_exactly_after_a_restore(start):
    with start() as installation:
        storm = Storm(installation, 1, names=["often", "loop"], faults=["restore from a backup"])
        storm.run(num_faults=1)
        assert storm.violations == []
