"""A short storm on both installations; `python3 -m trainops chaos` makes longer ones."""

import pytest

from tests.faults.installations import one_machine, two_machines
from tests.faults.storm import Storm
from tests.thinning import some_of

pytestmark = [pytest.mark.faults, pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(900)]
NUM_FAULTS = 6


@pytest.mark.parametrize(("start", "seed"), some_of([(two_machines, 2), (one_machine, 1)], every=2))
def test_nothing_is_lost_and_nothing_is_done_twice(start, seed):
    with start() as installation:
        storm = Storm(installation, seed)
        storm.run(num_faults=NUM_FAULTS)
        print(f"seed {seed}: {dict(storm.counts)}")  # noqa: T201 - shown when it fails
        assert storm.violations == []
