"""A worker's house inside the test's process: real children, forked from a real nursery."""

import pytest

from apps.operations.attempts import work
from apps.operations.attempts.children import Nursery
from apps.operations.scheduling.holding import Holding
from tests.waiting import wait_until


@pytest.fixture(scope="session")
def nursery():
    nursery = Nursery()
    nursery.open()
    wait_until(lambda: nursery.is_ready, 60)
    yield nursery
    nursery.close()


@pytest.fixture
def house(nursery):
    house = work.House()
    house.worker_id = "worker-1"
    house.holding = Holding(slots=1)
    house.nursery = nursery
    return house
