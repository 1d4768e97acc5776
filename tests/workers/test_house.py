"""The duties of a worker process outlive whatever goes wrong in one of their rounds."""

import threading

import pytest
from django.db import InterfaceError, OperationalError

from apps.operations.work import House
from apps.workers.house import Keeper


@pytest.mark.parametrize("error", [OperationalError, InterfaceError, RuntimeError, KeyError])
def test_a_duty_goes_on_after_a_round_that_failed(error, transactional_db):
    rounds, went_on = [], threading.Event()
    keeper = Keeper(House())

    def duty():
        rounds.append(1)
        if len(rounds) < 3:
            raise error("not this time")
        went_on.set()

    keeper._duty(0.01, duty, "test")
    try:
        assert went_on.wait(10)
    finally:
        keeper.has_left.set()
