"""What is saved of an operation that is stopped in a long validation, or that hangs: all it can.

An epoch of the scripted recipe has 4 steps and 4 batches of validation.
"""

import signal
import time
from contextlib import suppress

import psutil
import pytest

from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import salvage
from apps.operations.models import MetricPoint, Operation
from apps.operations.requests import services
from tests.operations.attempts import Running, run, submit
from tests.operations.test_supervisor import curve, start_message, weights
from tests.waiting import wait_until
from trainops.process.protocol import Staged, now
from trainops.process.wire import Hangup

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.database,
]
SELDOM = {"every_steps": 1000}
LONG = {"validation_seconds": 0.5, "checkpoint": SELDOM}  # 2 s of it after each epoch


def cancel(running):
    running.held.stop = Operation.Stop.CANCEL


def close(running, seconds=2.0):
    """Set the deadline that a worker sets for each of its attempts when it shuts down."""
    running.held.must_be_gone_at = now() + seconds


def note(operation):
    return operation.events.first().note


def in_its_validation(running, epoch=1):
    place = f"{epoch - 1} of"
    wait_until(lambda: "of the validation" in (at := running.operation.row.get().place)
               and at.startswith(place))  # fmt: skip


def require_same_end(runtime, person, operation, epochs=2):
    """Resume, where that is a person's to do, and compare with a run that nobody touched."""
    if operation.state != "RESUMING":
        services.resume(operation_id=operation.pk, actor=person)
    operation.row.update(not_before=None)
    resumed = run(runtime, operation)
    whole = run(runtime, submit(epochs=epochs))
    assert resumed.state == whole.state == "COMPLETED"
    assert weights(resumed) == weights(whole)
    assert curve(resumed) == curve(whole)
    assert resumed.result == whole.result
    assert resumed.attempts.first().receipt["exact"]


@pytest.mark.parametrize(
    ("stop", "state", "kind"),
    [(cancel, "CANCELLED", "cancellation"), (close, "RESUMING", "shutdown")],
)
def test_a_stop_within_a_long_validation_is_taken_between_its_batches(
    runtime, person, stop, state, kind
):
    running = Running(runtime, submit(limits={"cancel_timeout_seconds": 1.4}, **LONG))
    in_its_validation(running)
    stop(running)
    operation = running.ended()
    assert operation.state == state
    assert "no safe point" not in note(operation)
    saved = Checkpoint.objects.get()
    assert (saved.type, saved.step) == (kind, operation.step) == (kind, 4)
    assert note(operation).endswith(f"; saved: {saved}")
    require_same_end(runtime, person, operation)


def test_a_validation_that_takes_longer_than_a_stall_is_none(runtime):
    limits, slow = {"stall_timeout_seconds": 3.5}, LONG | {"validation_seconds": 1.0}
    operation = run(runtime, submit(epochs=1, limits=limits, **slow))
    assert (operation.state, operation.attempt) == ("COMPLETED", 1)


@pytest.mark.parametrize(
    ("stop", "limits", "state", "reason", "kind"),
    [
        (cancel, {"cancel_timeout_seconds": 0.5}, "CANCELLED", "CANCEL_TIMEOUT", "cancellation"),
        (close, {}, "RESUMING", "SHUTDOWN", "shutdown"),
        (None, {"stall_timeout_seconds": 5}, "RESUMING", "STALLED", "failure"),
    ],
    ids=["cancel", "shutdown", "stall"],
)
def test_a_validation_that_hangs_is_killed_and_what_was_in_memory_is_saved(
    runtime, person, tmp_path, stop, limits, state, reason, kind
):
    hangs = submit(
        "hang", once=str(tmp_path / "hung"), validation_at=6, step_seconds=0.5, limits=limits,
        checkpoint=SELDOM,
    )  # fmt: skip
    running = Running(runtime, hangs)
    in_its_validation(running, epoch=2)
    if stop is not None:
        stop(running)
    operation = running.ended()
    assert (operation.state, operation.reason) == (state, reason)
    saved = Checkpoint.objects.get()
    assert saved.type == kind
    assert 0 < saved.step <= 8  # how fresh it is, the time that freezing took decides
    assert f"; saved: {saved}" in note(operation)
    require_same_end(runtime, person, operation)


def test_a_step_that_hangs_loses_nothing_but_itself(runtime, person, tmp_path):
    hangs = submit(
        "hang", once=str(tmp_path / "hung"), at=6, step_seconds=0.25, checkpoint=SELDOM,
        limits={"cancel_timeout_seconds": 0.5},
    )  # fmt: skip
    running = Running(runtime, hangs).until_step(5)
    cancel(running)
    operation = running.ended()
    assert operation.reason == "CANCEL_TIMEOUT"
    assert 0 < Checkpoint.objects.get().step <= 5
    require_same_end(runtime, person, operation)


def test_who_does_not_answer_is_killed_all_the_same_and_the_note_says_what_is_left(
    runtime, monkeypatch
):
    """The interpreter's lock is held: no thread of the child can hear or save anything."""
    monkeypatch.setattr(salvage, "ANSWER_SECONDS", 1.0)
    limits = {"cancel_timeout_seconds": 0.5}
    checkpoint = {"every_steps": 4}
    running = Running(
        runtime, submit("hold_gil", at=6, step_seconds=0.6, limits=limits, checkpoint=checkpoint)
    )
    running.until_step(5)
    began = time.monotonic()
    cancel(running)
    operation = running.ended()
    assert time.monotonic() - began < 6
    assert operation.reason == "CANCEL_TIMEOUT"
    kept = Checkpoint.objects.get()
    assert (kept.type, kept.step) == ("periodic", 4)
    said = note(operation)
    assert "did not respond" in said
    assert said.endswith(f"; nothing newer was saved: the {kept} is the last one")


def test_a_salvage_that_fails_is_said_to_have_failed(runtime, settings):
    limits = {"cancel_timeout_seconds": 0.5}
    running = Running(
        runtime, submit("hang", at=4, step_seconds=0.25, limits=limits, checkpoint=SELDOM)
    )
    running.until_step(3)
    root = settings.CHECKPOINT_ROOT
    root.rename(root.with_name("elsewhere"))  # nothing can be written any more
    cancel(running)
    operation = running.ended()
    assert operation.reason == "CANCEL_TIMEOUT"
    assert "could not be saved" in note(operation)
    assert note(operation).endswith("; there is no checkpoint")
    assert not Checkpoint.objects.exists()


def test_points_of_a_validation_that_is_repeated_are_not_counted_twice(runtime, person):
    """A copy from before it may be saved when the run had come further, and measured it already."""
    running = Running(runtime, submit(**LONG | {"validation_seconds": 1.0}))
    in_its_validation(running)
    cancel(running)
    operation = running.ended()
    measured = {
        "operation": operation,
        "attempt": 1,
        "name": "val_loss",
        "at": operation.row.get().created_at,
    }
    for step in (3, 4, 5):
        MetricPoint.objects.create(**measured, step=step, value=-1.0)
    services.resume(operation_id=operation.pk, actor=person)
    run(runtime, operation)
    standing = MetricPoint.objects.filter(operation=operation, name="val_loss", retired_by=None)
    assert list(standing.filter(attempt=1).values_list("step", flat=True)) == [3]
    assert sorted(standing.filter(attempt=2).values_list("step", flat=True)) == [4, 8]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_every_process_of_a_batch_job_saves(runtime, person, number):
    """A batch system may send it to the children and to the forkserver, too."""
    running = Running(runtime, submit(epochs=3, step_seconds=0.1, checkpoint=SELDOM)).until_step(3)
    child = psutil.Process(running.pid)
    forkserver = child.parent()
    forkserver.send_signal(number)
    child.send_signal(number)
    operation = running.ended()
    assert forkserver.is_running()
    assert (operation.state, operation.reason) == ("RESUMING", "SHUTDOWN")
    saved = Checkpoint.objects.get()
    assert (saved.type, saved.step) == ("shutdown", operation.step)
    assert note(operation) == f"stopped because its process got a signal to stop; saved: {saved}"
    require_same_end(runtime, person, operation, epochs=3)


def test_a_child_whose_lease_is_not_renewed_saves_before_its_time_is_over(forkserver):
    """Its main thread hangs; its supervisor is away, and the next owner adopts what is staged."""
    hangs = submit("hang", at=6, step_seconds=0.25, checkpoint=SELDOM)
    child = forkserver.start("test:1")
    child.wire.send(start_message(hangs, 8))
    staged = []
    with suppress(Hangup):
        while True:
            read = child.wire.read()
            staged += [each.checkpoint for each in read if isinstance(each, Staged)]
    assert child.wait(10)
    child.close()
    assert [(each.type, 0 < each.step <= 5) for each in staged] == [("shutdown", True)]
