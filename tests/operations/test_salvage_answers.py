"""Which answers of a child a supervisor takes for answers to its request to save."""

import pytest

from apps.operations.attempts.ending import Cancelled, Interrupted
from apps.operations.attempts.salvage import ANSWER_SECONDS, WRITE_SECONDS, Salvage
from apps.operations.lifecycle import Reason

OVERDUE = Cancelled(Reason.CANCEL_TIMEOUT, "no safe point within 5 s; killed")


class Clock:
    seconds = 100.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sent():
    return []


@pytest.fixture
def salvage(clock, sent):
    return Salvage(tell=lambda kind, **fields: sent.append((kind, fields)), clock=clock)


def answer(kind, of="cancellation"):
    return {"kind": kind, "type": of}


def test_a_request_is_sent_once_and_the_end_comes_after_its_answer(salvage, sent):
    assert salvage.before(OVERDUE, is_possible=True) is None
    assert salvage.before(OVERDUE, is_possible=True) is None
    assert sent == [("salvage", {"type": "cancellation"})]
    salvage.hear(answer("salvaging"))
    assert salvage.before(OVERDUE, is_possible=True) is None
    salvage.hear(answer("salvaged"))
    assert salvage.before(OVERDUE, is_possible=True) == OVERDUE


def test_a_late_answer_to_another_request_neither_ends_the_wait_nor_acknowledges(salvage, clock):
    """The child saved at half of a shutdown's time; then the cancel was overdue."""
    salvage.hear(answer("salvaging", "shutdown"))
    assert salvage.before(OVERDUE, is_possible=True) is None
    salvage.hear(answer("salvaged", "shutdown"))
    assert salvage.before(OVERDUE, is_possible=True) is None
    salvage.hear(answer("salvaging"))
    clock.seconds += ANSWER_SECONDS + 1
    assert salvage.before(OVERDUE, is_possible=True) is None
    salvage.hear(answer("salvaged"))
    assert salvage.before(OVERDUE, is_possible=True) == OVERDUE


def test_a_child_that_is_silent_or_never_done_is_waited_for_only_so_long(salvage, clock):
    assert salvage.before(OVERDUE, is_possible=True) is None
    clock.seconds += ANSWER_SECONDS
    assert "it did not respond" in salvage.before(OVERDUE, is_possible=True).note
    salvage.hear(answer("salvaging"))
    assert salvage.before(OVERDUE, is_possible=True) is None
    clock.seconds += WRITE_SECONDS
    assert salvage.before(OVERDUE, is_possible=True) == OVERDUE


def test_an_end_that_does_not_wait_comes_first(salvage):
    killed = Cancelled(Reason.KILLED_BY_PERSON, "killed")
    lost = Interrupted(Reason.LEASE_LOST, "its lease could not be renewed in time")
    assert salvage.before(OVERDUE, is_possible=True) is None
    assert salvage.before(killed, is_possible=True) == killed
    assert salvage.before(lost, is_possible=True) == lost
