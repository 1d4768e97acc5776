"""A short storm on both stacks; `python3 -m trainops chaos` makes longer ones."""

import pytest

from tests.faults.storm import Storm
from tests.journey.stack import running
from trainops.launch.servers import postgres_server, redis_server

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(900)]
NUM_FAULTS = 20


def weather(stack, seed):
    storm = Storm(stack, seed)
    storm.run(num_faults=NUM_FAULTS)
    print(f"seed {seed}: {dict(storm.counts)}")  # noqa: T201 - shown when it fails
    assert storm.violations == []


def test_nothing_is_lost_and_nothing_is_done_twice_on_the_embedded_stack(tmp_path):
    with running(tmp_path / "var", workers=2) as stack:
        weather(stack, seed=1)


def test_nothing_is_lost_and_nothing_is_done_twice_on_postgresql(tmp_path):
    with postgres_server() as database, redis_server() as broker:
        urls = {"TRAINOPS_DATABASE_URL": database, "TRAINOPS_BROKER_URL": broker}
        with running(tmp_path / "var", workers=2, **urls) as stack:
            weather(stack, seed=2)
