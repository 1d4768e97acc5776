"""Few at once, one for each person, and nobody waits for long."""

import threading
import time

import pytest

from trainops.slots import Slots, SlotsBusy


def test_a_person_has_one_and_the_last_one_has_none():
    slots = Slots(2)
    with slots.taken("ana"):
        with pytest.raises(SlotsBusy), slots.taken("ana", wait_seconds=0):
            pass
        with (
            slots.taken("ben"),
            pytest.raises(SlotsBusy) as refused,
            slots.taken("eva", wait_seconds=0),
        ):
            pass
        with slots.taken("eva", wait_seconds=0):
            pass
    with slots.taken("ana", wait_seconds=0):
        pass
    assert (refused.value.status, refused.value.retry_after_seconds) == (503, 10)


def test_the_server_itself_may_have_all():
    slots = Slots(2)
    with (
        slots.taken(""),
        slots.taken(""),
        pytest.raises(SlotsBusy),
        slots.taken("", wait_seconds=0),
    ):
        pass


def test_a_waiting_thread_gets_the_slot_that_is_given_back():
    slots, has_it = Slots(1), threading.Event()

    def wait():
        with slots.taken("ben", wait_seconds=60):
            has_it.set()

    with slots.taken("ana"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.05)
        assert not has_it.is_set()
    waiting.join(60)
    assert has_it.is_set()
