"""Cancel and kill, in whatever the operation is doing: bounded, and it says what was saved."""

import time

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation
from apps.operations.requests import access, services
from apps.operations.scheduling import claims, sweeps
from tests.operations import rows
from tests.operations.attempts import (
    Running,
    killed_after_its_first_checkpoint,
    run,
    submit,
)
from tests.waiting import wait_until
from trainops.clock import seconds_from_now
from trainops.process.protocol import now

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.database,
]
PROMPT_SECONDS = 2.0  # of the worker itself, beside what the operation is busy with


def note(operation):
    return operation.events.first().note


def stop(running, how):
    """What the worker's thread does when it has read the wish."""
    running.held.stop = how


def test_what_waits_is_cancelled_at_once(person):
    operation = submit()
    services.cancel(operation_id=operation.pk, actor=person)
    operation = services.get(operation.pk)
    assert (operation.state, note(operation)) == ("CANCELLED", "not running")


@pytest.mark.parametrize("how", [services.cancel, services.kill])
def test_what_pauses_before_a_restart_is_stopped_at_once_and_keeps_its_checkpoint(
    runtime, person, how
):
    operation = killed_after_its_first_checkpoint(runtime, every_steps=5)
    assert (operation.state, operation.not_before is None) == ("RESUMING", False)
    how(operation_id=operation.pk, actor=person)
    assert services.get(operation.pk).state == "CANCELLED"
    resumed = services.resume(operation_id=operation.pk, actor=person)
    assert resumed.checkpoint.step == 5


def test_a_cancel_while_it_starts_is_obeyed_before_the_first_step(runtime):
    running = Running(runtime, submit(build_seconds=0.7, epochs=1000, step_seconds=0.01))
    stop(running.until_started(), Operation.Stop.CANCEL)
    operation = running.ended()
    assert (operation.state, operation.step) == ("CANCELLED", 0)
    saved = Checkpoint.objects.get()
    assert (saved.type, saved.step) == ("cancellation", 0)
    assert str(saved) in note(operation)


def test_a_kill_while_it_starts_does_not_wait_for_it(runtime):
    running = Running(runtime, submit(build_seconds=60))
    began = time.monotonic()
    stop(running.until_started(), Operation.Stop.KILL)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", "KILLED_BY_PERSON")
    assert "nothing was saved" in note(operation)
    assert time.monotonic() - began < 20  # the forkserver's first child may take its time


def test_a_cancel_of_a_start_that_hangs_is_bounded(runtime):
    limits = {"cancel_timeout_seconds": 0.5}
    running = Running(runtime, submit(build_seconds=60, limits=limits))
    stop(running.until_started(), Operation.Stop.CANCEL)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", "CANCEL_TIMEOUT")
    assert "nothing was saved" in note(operation)


def test_a_cancel_in_validation_waits_for_its_end_and_loses_nothing(runtime):
    checkpoint = {"every_steps": 1000}
    running = Running(
        runtime, submit(epochs=100, validation_seconds=0.4, step_seconds=0.1, checkpoint=checkpoint)
    )
    running.until_step(3)  # of 4 in an epoch: what comes next is the validation
    stop(running, Operation.Stop.CANCEL)
    operation = running.ended()
    assert operation.state == "CANCELLED"
    saved = Checkpoint.objects.get()
    assert (saved.type, saved.step) == ("cancellation", operation.step)


def test_a_cancel_while_it_saves_leaves_one_whole_newest_checkpoint(runtime, person):
    """The commit waits for the row lock of another connection; the cancel comes meanwhile."""
    whole = run(runtime, submit(epochs=30))
    operation = submit(epochs=30, step_seconds=0.02, checkpoint={"every_steps": 10})
    running = Running(runtime, operation).until_step(5)
    with transaction.atomic():
        Operation.objects.select_for_update().filter(pk=operation.pk).update(name="locked")
        directory = wait_until(
            lambda: list(rows.checkpoint_directory(operation).glob("*-periodic/manifest.json"))
        )
        stop(running, Operation.Stop.CANCEL)
        assert directory
        assert running.thread.is_alive()
    operation = running.ended()
    assert operation.state == "CANCELLED"
    newest = Checkpoint.objects.filter(operation=operation).newest_first().first()
    assert (newest.type, newest.step) == ("cancellation", operation.step)

    services.resume(operation_id=operation.pk, actor=person)
    done = run(runtime, operation)
    assert done.result == whole.result


def test_a_cancel_of_what_a_dead_worker_ran_is_carried_out_by_the_sweep(person):
    operation = rows.claimed()
    services.cancel(operation_id=operation.pk, actor=person)
    operation.row.update(lease_expires_at=seconds_from_now(-1))
    assert sweeps.recover_lost(actor="beat") == 1
    operation = services.get(operation.pk)
    assert (operation.state, operation.reason) == ("CANCELLED", "CANCELLED_BY_PERSON")
    assert "a stop was requested" in note(operation)


def test_a_kill_of_what_a_dead_worker_ran_stays_a_kill(person):
    operation = rows.claimed()
    services.kill(operation_id=operation.pk, actor=person)
    rows.forget_lease(operation)
    assert sweeps.recover_lost(actor="beat") == 1
    operation = services.get(operation.pk)
    assert (operation.state, operation.reason) == ("CANCELLED", "KILLED_BY_PERSON")


@pytest.mark.parametrize(
    ("stop", "reason"),
    [(services.cancel, "CANCELLED_BY_PERSON"), (services.kill, "KILLED_BY_PERSON")],
)
@pytest.mark.parametrize("is_asked_already", [False, True])
def test_what_no_worker_claims_any_more_is_stopped_at_once(person, stop, reason, is_asked_already):
    operation = rows.claimed(person)
    if is_asked_already:
        stop(operation_id=operation.pk, actor=person)
    rows.forget_lease(operation)
    person.groups.add(Group.objects.get_or_create(name="operator")[0])
    assert access.allowed_actions(services.get(operation.pk), person) == ["cancel", "kill"]

    stopped = stop(operation_id=operation.pk, actor=person)

    assert (stopped.state, stopped.reason) == ("CANCELLED", reason)
    assert stopped.attempts.get().outcome == "lost"
    assert note(stopped).endswith("no worker holds its lease any more; nothing was saved")


def test_a_renewal_that_comes_before_the_cancel_wins(person, monkeypatch):
    operation = rows.claimed()
    rows.forget_lease(operation)
    decide = claims.cancel_lost

    def renewed_meanwhile(lost, *arguments, **named):
        claims.renew("worker-1", [(lost.pk, 1)])
        return decide(lost, *arguments, **named)

    monkeypatch.setattr(claims, "cancel_lost", renewed_meanwhile)
    asked = services.cancel(operation_id=operation.pk, actor=person)
    assert (asked.state, asked.stop_requested) == ("RUNNING", "cancel")


def test_a_kill_after_a_cancel_does_not_wait_any_longer(runtime, person):
    running = Running(runtime, submit("hang", at=3)).until_step(2)
    services.cancel(operation_id=running.operation.pk, actor=person)
    stop(running, Operation.Stop.CANCEL)
    services.kill(operation_id=running.operation.pk, actor=person)
    began = time.monotonic()
    stop(running, Operation.Stop.KILL)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", "KILLED_BY_PERSON")
    assert time.monotonic() - began < PROMPT_SECONDS


def cancel(held):
    held.stop = Operation.Stop.CANCEL


def shut_down(held):
    held.must_be_gone_at = now() + 5


def drain(held):
    held.is_to_leave = True


@pytest.mark.parametrize(
    ("stop", "limits", "state", "reason"),
    [
        (cancel, {}, "CANCELLED", "CANCELLED_BY_PERSON"),
        (shut_down, {}, "RESUMING", "SHUTDOWN"),
        (drain, {}, "RESUMING", "SHUTDOWN"),
        (None, {"max_duration_seconds": 3.0}, "FAILED", "TIME_LIMIT"),
    ],
    ids=["cancel", "shutdown", "drain", "time limit"],
)
@pytest.mark.parametrize("is_full", [True, False])
def test_a_stop_says_what_was_saved_of_it_and_what_was_not(
    runtime, settings, stop, limits, state, reason, is_full
):
    """The disk is full: the periodic checkpoint before it is not what this stop saved."""
    checkpoint = {"every_steps": 10}
    running = Running(
        runtime, submit(epochs=200, step_seconds=0.02, checkpoint=checkpoint, limits=limits)
    )
    wait_until(Checkpoint.objects.exists)
    root = settings.CHECKPOINT_ROOT
    if is_full:
        root.rename(root.with_name("elsewhere"))  # nothing can be written any more
        running.until_step(running.operation.row.get().step + 2)
    if stop is not None:
        stop(running.held)
    operation = running.ended()
    if is_full:
        root.with_name("elsewhere").rename(root)
    newest = Checkpoint.objects.newest_first().first()
    assert (operation.state, operation.reason) == (state, reason)
    said = note(operation)
    if is_full:
        assert "could not be saved" in said and f"; the {newest} is the last one" in said
        assert "; saved: " not in said and "was saved" not in said
    else:
        assert f"; saved: {newest}" in said and newest.step == operation.step
        assert newest.type in ("cancellation", "shutdown")


def test_an_attempt_whose_lease_ran_out_says_that_nothing_newer_was_saved(runtime, settings):
    checkpoint = {"every_steps": 10}
    running = Running(
        runtime, submit("hang", at=13, step_seconds=0.02, checkpoint=checkpoint, epochs=9)
    )
    wait_until(Checkpoint.objects.exists)
    running.until_step(12)
    running.held.renewed_at -= settings.THRESHOLDS.fence_kill_seconds + 1
    operation = running.ended()
    kept = Checkpoint.objects.get()
    assert (operation.reason, kept.step) == ("LEASE_LOST", 10)
    assert note(operation).endswith(f"; nothing newer was saved: the {kept} is the last one")
