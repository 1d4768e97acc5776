"""Which answers of a child a supervisor takes for answers to its request to save."""

import pytest

from apps.operations.attempts.outcomes import Cancelled, Interrupted
from apps.operations.attempts.salvage import ANSWER_SECONDS, WRITE_SECONDS, SalvageDelay
from apps.operations.lifecycle import Reason
from trainops.process import protocol
from trainops.process.protocol import Salvaged, Salvaging
from trainops.runtime.checkpoint.manifest import CheckpointType

CANCELLATION = CheckpointType.CANCELLATION
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
    return SalvageDelay(send=sent.append, clock=clock)


def test_a_request_is_sent_once_and_the_end_comes_after_its_answer(salvage, sent):
    assert salvage.before(OVERDUE, is_possible=True) is None
    assert salvage.before(OVERDUE, is_possible=True) is None
    assert sent == [protocol.Salvage(CANCELLATION)]
    salvage.receive(Salvaging(CANCELLATION))
    assert salvage.before(OVERDUE, is_possible=True) is None
    salvage.receive(Salvaged(CANCELLATION))
    assert salvage.before(OVERDUE, is_possible=True) == OVERDUE


def test_a_late_answer_to_another_request_neither_ends_the_wait_nor_acknowledges(salvage, clock):
    """The child saved at half of a shutdown's time; then the cancel was overdue."""
    salvage.receive(Salvaging(CheckpointType.SHUTDOWN))
    assert salvage.before(OVERDUE, is_possible=True) is None
    salvage.receive(Salvaged(CheckpointType.SHUTDOWN))
    assert salvage.before(OVERDUE, is_possible=True) is None
    salvage.receive(Salvaging(CANCELLATION))
    clock.seconds += ANSWER_SECONDS + 1
    assert salvage.before(OVERDUE, is_possible=True) is None
    salvage.receive(Salvaged(CANCELLATION))
    assert salvage.before(OVERDUE, is_possible=True) == OVERDUE


def test_a_child_that_is_silent_or_never_done_is_waited_for_only_so_long(salvage, clock):
    assert salvage.before(OVERDUE, is_possible=True) is None
    clock.seconds += ANSWER_SECONDS
    assert "it did not respond" in salvage.before(OVERDUE, is_possible=True).note
    salvage.receive(Salvaging(CANCELLATION))
    assert salvage.before(OVERDUE, is_possible=True) is None
    clock.seconds += WRITE_SECONDS
    assert salvage.before(OVERDUE, is_possible=True) == OVERDUE


def test_an_end_that_does_not_wait_comes_first(salvage):
    killed = Cancelled(Reason.KILLED_BY_PERSON, "killed")
    lost = Interrupted(Reason.LEASE_LOST, "its lease could not be renewed in time")
    assert salvage.before(OVERDUE, is_possible=True) is None
    assert salvage.before(killed, is_possible=True) == killed
    assert salvage.before(lost, is_possible=True) == lost
