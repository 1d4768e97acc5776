"""How a child answers requests to save what it has in memory, whatever becomes of the saving."""

import socket
import threading

import pytest

from trainops.process.protocol import Salvaged, Salvaging, ToChild, ToSupervisor, now
from trainops.process.protocol import SaveFailed as NotSaved
from trainops.process.supervisor_client import SupervisorClient
from trainops.process.wire import Wire
from trainops.runtime.checkpoint.manifest import CheckpointType
from trainops.runtime.errors import LeaseLost, SaveFailed


class Hanging:
    """An attempt whose saving takes until it is let go, and then ends so."""

    def __init__(self, error=None):
        self.error = error
        self.kinds = []
        self.begun, self.may_end = threading.Event(), threading.Event()

    def salvage(self, kind):
        self.kinds.append(kind)
        self.begun.set()
        assert self.may_end.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def ends():
    """Return both ends: a child's line, and the supervisor's wire."""
    one, other = socket.socketpair()
    line = SupervisorClient(Wire(one, ToChild), grant_until=now() + 3600)
    yield line, Wire(other, ToSupervisor)
    line._granted(now() + 3600)
    one.close()
    other.close()


@pytest.fixture(autouse=True)
def _no_timer(monkeypatch):
    """The kernel's timer would end the process of the tests."""
    monkeypatch.setattr("trainops.process.supervisor_client.signal.setitimer", lambda *_: None)


def heard(wire, *, until):
    """Return the kinds of messages until this many have come."""
    messages = []
    while len(messages) < until:
        messages += wire.read()
    return messages


def test_every_request_is_acknowledged_while_an_earlier_one_is_worked_on(ends):
    line, wire = ends
    attempt = Hanging()
    line.begun(attempt)
    line.salvage(CheckpointType.SHUTDOWN)
    assert attempt.begun.wait(30)
    line.salvage(CheckpointType.CANCELLATION)
    kinds = CheckpointType.SHUTDOWN, CheckpointType.CANCELLATION
    assert heard(wire, until=2) == [Salvaging(each) for each in kinds]
    attempt.may_end.set()
    answers = heard(wire, until=2)  # of two threads, after they have saved one after the other
    assert sorted(each.type for each in answers) == sorted(kinds)
    assert all(isinstance(each, Salvaged) for each in answers)
    assert attempt.kinds == [CheckpointType.SHUTDOWN, CheckpointType.CANCELLATION]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SaveFailed(7, "the disk is full"), "the disk is full"),
        (ZeroDivisionError("in the recipe"), "ZeroDivisionError: in the recipe"),
    ],
)
def test_what_went_wrong_is_reported_and_the_request_is_answered(ends, error, message):
    line, wire = ends
    attempt = Hanging(error)
    attempt.may_end.set()
    line.begun(attempt)
    line.salvage(CheckpointType.FAILURE)
    first, failed, last = heard(wire, until=3)
    kind = CheckpointType.FAILURE
    assert (first, last) == (Salvaging(kind), Salvaged(kind))
    assert isinstance(failed, NotSaved) and message in failed.error


def test_nothing_more_is_sent_where_another_attempt_owns_the_operation(ends):
    line, wire = ends
    attempt = Hanging(LeaseLost())
    attempt.may_end.set()
    line.begun(attempt)
    line.salvage(CheckpointType.FAILURE)
    (only,) = heard(wire, until=1)
    assert only == Salvaging(CheckpointType.FAILURE)
    line.salvage(CheckpointType.FAILURE)
    (only,) = heard(wire, until=1)
    assert only == Salvaging(CheckpointType.FAILURE)
