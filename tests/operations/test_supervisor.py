"""Real children, forked from a real nursery, supervised in this process."""

import json
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import psutil
import pytest
from django.db import OperationalError
from django.utils import timezone

from apps.checkpoints import services as checkpoints
from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.operations.attempts.children import Nursery
from apps.operations.attempts.ledger import Ledger
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, LogChunk, MetricPoint, Operation
from apps.operations.requests import services
from apps.operations.scheduling import sweeps
from tests.operations.attempts import (
    Running,
    killed_after_its_first_checkpoint,
    run,
    submit,
)
from tests.waiting import has_ended, wait_until
from trainops.clock import seconds_from_now
from trainops.process.protocol import now

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True), pytest.mark.database]


def test_it_runs_to_the_end_and_keeps_the_result(house):
    operation = run(house, submit())
    assert (operation.state, operation.step, operation.total_steps) == ("COMPLETED", 8, 8)
    assert operation.result["final"]["epoch"] == 2
    assert [c.type for c in Checkpoint.objects.all()] == ["final"]
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.from_step, attempt.to_step) == ("completed", 0, 8)
    assert operation.checkpoint_bytes == Checkpoint.objects.get().artifacts_size_bytes > 0
    assert attempt.timings["first_step"] > 0
    assert MetricPoint.objects.filter(name="val_loss").count() == 2


def test_what_the_job_prints_is_kept(house):
    run(house, submit("print", at=1))
    log = "".join(LogChunk.objects.values_list("text", flat=True))
    assert "a line from the job" in log
    assert "a warning from the job" in log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "reason", "state"),
    [
        ("raise", Reason.JOB_ERROR, State.FAILED),
        ("nan", Reason.NON_FINITE_LOSS, State.FAILED),
        ("memory", Reason.OUT_OF_MEMORY, State.RESUMING),
        ("segfault", Reason.SEGMENTATION_FAULT, State.RESUMING),
        ("kill", Reason.PROCESS_KILLED, State.RESUMING),
        ("exit", Reason.HOUSE_ERROR, State.RESUMING),
    ],
)
def test_every_way_to_end_badly_is_told_apart(house, what, reason, state):
    operation = run(house, submit(what, at=3))
    assert (operation.reason, operation.state) == (reason, state)
    assert operation.error["code"] == reason
    assert Attempt.objects.get().ended_at is not None


def test_an_error_of_the_job_shows_where_it_was_raised(house):
    operation = run(house, submit("raise", at=3))
    assert operation.error["message"] == "ValueError: the data of this step is broken"
    assert "scripted_model.py" in operation.error["traceback"]


@pytest.mark.slow
def test_a_failure_saves_the_last_safe_point(house):
    run(house, submit("raise", at=3, step_seconds=0.3))
    checkpoint = Checkpoint.objects.get()
    assert checkpoint.type == "failure"
    assert checkpoint.step in (1, 2)  # how fresh it is, the time that freezing took decides


def test_a_cancel_saves_where_it_stopped(house, person):
    running = Running(house, submit(step_seconds=0.02, epochs=100)).until_step(3)
    services.cancel(operation_id=running.operation.pk, actor=person)
    running.held.stop = Operation.Stop.CANCEL
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", Reason.CANCELLED_BY_PERSON)
    checkpoint = Checkpoint.objects.get()
    assert (checkpoint.type, checkpoint.step) == ("cancellation", operation.step)
    assert f"step {checkpoint.step}" in operation.events.first().note


@pytest.mark.slow
def test_a_cancelled_operation_continues_to_the_identical_result(house, person):
    whole = run(house, submit(epochs=20))
    running = Running(house, submit(step_seconds=0.03, epochs=20)).until_step(10)
    services.cancel(operation_id=running.operation.pk, actor=person)
    running.held.stop = Operation.Stop.CANCEL
    services.resume(operation_id=running.ended().pk, actor=person)

    resumed = run(house, running.operation)

    assert resumed.state == "COMPLETED"
    assert weights(resumed) == weights(whole)
    assert curve(resumed) == curve(whole)
    assert resumed.attempts.first().receipt["exact"]


def weights(operation):
    manifest = operation.checkpoints.get(type="final").manifest
    return {entry["name"]: entry["blake3"] for entry in manifest if entry["name"] != "state.json"}


def curve(operation):
    points = MetricPoint.objects.filter(operation=operation, retired_by=None)
    return list(points.order_by("name", "step").values_list("name", "step", "value"))


def test_a_kill_ends_it_at_once_and_the_last_checkpoint_stands(house, person):
    operation = submit("hang", at=5, checkpoint={"every_steps": 4})
    running = Running(house, operation)
    wait_until(Checkpoint.objects.exists)
    running.held.stop = Operation.Stop.KILL
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", Reason.KILLED_BY_PERSON)
    assert Checkpoint.objects.first().step == 4


@pytest.mark.slow
def test_a_process_that_reaches_no_safe_point_is_killed_when_its_time_is_up(house):
    operation = submit("hang", at=3, limits={"cancel_timeout_seconds": 0.3})
    running = Running(house, operation).until_step(2)
    running.held.stop = Operation.Stop.CANCEL
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", Reason.CANCEL_TIMEOUT)


@pytest.mark.slow
def test_no_progress_is_a_stall(house):
    operation = run(house, submit("hang", at=3, limits={"stall_timeout_seconds": 0.5}))
    assert (operation.state, operation.reason) == ("RESUMING", Reason.STALLED)


@pytest.mark.slow
def test_the_time_limit_saves_and_fails(house):
    limits = {"max_duration_seconds": 0.5}
    operation = run(house, submit(step_seconds=0.02, epochs=1000, limits=limits))
    assert (operation.state, operation.reason) == ("FAILED", Reason.TIME_LIMIT)
    assert Checkpoint.objects.get().step == operation.step


def spent(operation, number, seconds, reason):
    """An attempt that ended an hour ago."""
    ended_at = timezone.now() - timedelta(hours=1)
    Attempt.objects.create(
        operation=operation, number=number, worker_id="worker-0", outcome="failed", reason=reason,
        started_at=ended_at - timedelta(seconds=seconds), ended_at=ended_at,
    )  # fmt: skip


def test_the_time_limit_is_for_all_attempts_together(house):
    limits = {"max_duration_seconds": 60}
    operation = submit(step_seconds=0.02, epochs=1000, limits=limits)
    spent(operation, 1, 40, Reason.WORKER_LOST)
    spent(operation, 2, 19.9, Reason.SHUTDOWN)
    operation.row.update(attempt=2, state=State.RESUMING)
    operation = run(house, operation)
    assert (operation.state, operation.reason) == ("FAILED", Reason.TIME_LIMIT)
    third = Attempt.objects.get(number=3)
    assert third.ended_at - third.started_at < timedelta(seconds=20)


def test_who_resumes_after_the_time_limit_grants_the_time_once_more(house):
    operation = submit(limits={"max_duration_seconds": 60})
    spent(operation, 1, 50, Reason.WORKER_LOST)
    spent(operation, 2, 10, Reason.TIME_LIMIT)
    spent(operation, 3, 40, Reason.SHUTDOWN)
    operation.row.update(attempt=3, state=State.RESUMING)
    assert Attempt.seconds_spent(operation.pk) == pytest.approx(40)
    assert run(house, operation).state == "COMPLETED"


@pytest.mark.slow
def test_a_shutdown_saves_and_hands_back_without_penalty(house):
    running = Running(house, submit(step_seconds=0.02, epochs=100)).until_step(3)
    house.holding.close(gone_in_seconds=10)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.SHUTDOWN)
    assert (operation.restarts_used, operation.not_before) == (0, None)
    assert Checkpoint.objects.get().type == "shutdown"


@pytest.mark.slow
def test_a_worker_that_must_go_does_not_wait_for_a_job_that_hangs(house):
    running = Running(house, submit("hang", at=3)).until_step(2)
    house.holding.close(gone_in_seconds=0.2)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.SHUTDOWN)


@pytest.mark.slow
def test_a_ghost_stops_itself_and_changes_nothing(house):
    running = Running(house, submit(step_seconds=0.02, epochs=1000)).until_step(3)
    pid = running.pid
    operation = services.get(running.operation.pk)
    operation.row.move(State.RESUMING, actor="sweep")
    operation.row.move(
        State.RUNNING,
        actor="worker-2",
        attempt=2,
        worker_id="worker-2",
        lease_expires_at=seconds_from_now(60),
    )
    before = services.get(operation.pk)

    after = running.ended()

    assert (after.state, after.attempt, after.worker_id) == ("RUNNING", 2, "worker-2")
    assert (after.step, after.metrics) == (before.step, before.metrics)
    assert not psutil.pid_exists(pid)
    assert Checkpoint.objects.count() == 0


@pytest.mark.slow
def test_an_attempt_whose_lease_cannot_be_renewed_is_ended_by_its_supervisor(house, settings):
    running = Running(house, submit("hang", at=3)).until_step(2)
    running.held.renewed_at = now() - settings.THRESHOLDS.fence_kill_seconds - 1
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.LEASE_LOST)


@pytest.mark.parametrize("what", ["hang", "hold_gil"])
@pytest.mark.slow
def test_a_child_that_is_granted_no_more_time_ends_itself(nursery, what):
    """Also with the interpreter's lock held: the kernel's timer needs nothing of Python."""
    child = start(nursery, what, grant_seconds=1.5)
    began = time.monotonic()
    assert child.wait(10)
    assert time.monotonic() - began < 5
    child.close()


@pytest.mark.parametrize("what", ["hang", "nothing"])
def test_a_child_whose_supervisor_hangs_up_ends_itself(nursery, what):
    child = start(nursery, what, grant_seconds=60)
    child.wire.close()
    assert child.wait(10)


@pytest.mark.slow
def test_children_die_with_the_nursery_even_with_the_lock_held():
    nursery = Nursery()
    nursery.open()
    wait_until(lambda: nursery.is_ready, 60)
    child = start(nursery, "hold_gil", grant_seconds=60)
    nursery._closed = True
    nursery._process.kill()
    wait_until(lambda: has_ended(child.pid))
    child.close()


# A worker in a process of its own: it starts a child that holds its interpreter's lock, so that it
# cannot see the end of the wire, and tells its number.
WORKER = """
import json, sys, time
from apps.operations.attempts.children import Nursery
nursery = Nursery()
nursery.open()
child = nursery.start("test:1", warm_up_seconds=60)
child.wire.send("start", **json.loads(sys.argv[1]))
while all(message.get("step") != 1 for message in child.wire.read()):
    pass
print(child.pid, flush=True)
time.sleep(3600)
"""


@pytest.mark.slow
def test_children_die_with_the_nursery_while_their_worker_is_frozen():
    """Nobody is left to kill them, and nothing hangs up: the kernel does it."""
    told = json.dumps(beginning(submit("hold_gil", at=2, epochs=100_000), grant_seconds=120))
    command = [sys.executable, "-c", WORKER, told]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        pid = int(worker.stdout.readline())
        (nursery,) = psutil.Process(worker.pid).children()
        worker.send_signal(signal.SIGSTOP)
        nursery.kill()
        try:
            wait_until(lambda: has_ended(pid))
        finally:
            worker.kill()


@pytest.mark.slow
def test_nothing_of_the_process_group_is_left(house):
    running = Running(house, submit("ignore_and_fork", at=3)).until_step(2)
    pid = running.pid
    wait_until(lambda: sleepers(pid))
    (sleeper,) = sleepers(pid)
    running.held.stop = Operation.Stop.KILL
    running.ended()
    assert not psutil.pid_exists(pid)
    assert has_ended(sleeper)


def sleepers(pid):
    return [each.pid for each in psutil.Process(pid).children() if each.name() == "sleep"]


def start(nursery, what, grant_seconds):
    """Start a child by hand and wait until it is where it misbehaves."""
    child = nursery.start("test:1")
    child.wire.send("start", **beginning(submit(what, at=2, epochs=100_000), grant_seconds))
    until_it_misbehaves(child)
    return child


def beginning(operation, grant_seconds):
    return {
        "operation_kind": "training",
        "config": operation.config,
        "inputs": {},
        "directory": str(storage.operation_directory(operation.pk)),
        "identity": {"operation_id": operation.pk, "attempt": 1},
        "reserve_bytes": 0,
        "storage_id": "",
        "candidates": [],
        "environment": {"CUDA_VISIBLE_DEVICES": ""},
        "grant_until": now() + grant_seconds,
    }


@pytest.mark.slow
def test_a_stop_that_comes_with_the_start_is_heard(nursery):
    child = nursery.start("test:1")
    told = [{"kind": "start", **beginning(submit(epochs=300), 300)},
            {"kind": "stop", "directive": "PREEMPT"}]  # fmt: skip
    child.wire._end.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in told))
    heard = []
    while "ended" not in {each["kind"] for each in heard}:
        heard += child.wire.read()
        if heard and heard[-1]["kind"] == "staged":
            child.wire.send("committed")
    assert heard[-1]["how"] == "stopped" and heard[-1]["directive"] == "PREEMPT"
    child.end()
    child.close()


def until_it_misbehaves(child):
    """It does so in its second step, and reports the first one before."""
    while all(message.get("step") != 1 for message in child.wire.read()):
        pass


@pytest.mark.slow
def test_what_an_absent_database_could_not_commit_is_adopted_by_the_next_owner(
    house, monkeypatch, settings
):
    whole = run(house, submit(epochs=20))
    operation = submit(step_seconds=0.05, epochs=20, checkpoint={"every_epochs": 1000})
    # Nobody renews, as without a database: the child saves when a third of its grant is left.
    limits = settings.THRESHOLDS
    settings.THRESHOLDS = limits.model_copy(update={"child_deadline_seconds": 3.0})
    running = Running(house, operation).until_step(10)
    held = running.held

    write, commit, was_tried = Ledger._write, Ledger.commit, threading.Event()
    monkeypatch.setattr(Ledger, "_write", away)
    monkeypatch.setattr(
        Ledger, "commit", lambda ledger, staged: was_tried.set() or commit(ledger, staged)
    )
    wait_until(was_tried.is_set)
    held.renewed_at = now() - settings.THRESHOLDS.orphan_timeout_seconds - 1
    lost = running.ended()
    assert (lost.state, Checkpoint.objects.filter(operation=lost).count()) == ("RUNNING", 0)

    monkeypatch.setattr(Ledger, "_write", write)
    settings.THRESHOLDS = limits
    lost.row.update(lease_expires_at=seconds_from_now(-1))
    sweeps.recover_lost(actor="beat")
    lost.row.update(not_before=None)
    resumed = run(house, lost)

    assert resumed.state == "COMPLETED"
    assert resumed.attempts.get(number=2).from_step >= 10
    assert (weights(resumed), curve(resumed)) == (weights(whole), curve(whole))
    assert resumed.events.filter(what="ADOPTED").exists()


def away(ledger):
    raise OperationalError("the database is away")


@pytest.mark.slow
def test_a_chosen_older_checkpoint_holds_until_its_branch_has_one_of_its_own(house, person):
    """Else the next restart goes back to it again, and retention prefers the branch given up."""
    keep = {"every_steps": 4, "keep_last": 2, "keep_best": 0}
    operation = run(house, submit("raise", at=19, step_seconds=0.02, epochs=10, checkpoint=keep))
    older = operation.checkpoints.filter(type="periodic").earliest("step")
    newest = operation.checkpoints.newest_first().first()
    assert (older.step < newest.step, operation.state) == (True, "FAILED")

    operation.checkpoints.update(is_best=False)
    operation.checkpoints.filter(pk=older.pk).update(is_best=True)
    resumed = services.resume(operation_id=operation.pk, actor=person, checkpoint_id="best")
    assert resumed.operation.resume_from == older.pk
    again = run(house, operation)  # until the 19th step of this process, too
    assert again.attempts.get(number=2).from_step == older.step
    assert again.resume_from == ""
    newest = again.checkpoints.newest_first().first()
    assert (newest.attempt, newest.step > older.step) == (2, True)

    services.resume(operation_id=operation.pk, actor=person)
    run(house, operation)
    assert services.get(operation.pk).attempts.get(number=3).from_step == newest.step


def test_with_every_checkpoint_gone_bad_it_does_not_start_over(house):
    operation = killed_after_its_first_checkpoint(house, every_steps=4)
    operation.checkpoints.update(health="corrupted")
    operation.row.update(not_before=None)
    operation = run(house, operation)
    assert (operation.state, operation.reason) == ("FAILED", Reason.CHECKPOINT_CORRUPTED)


def test_a_commit_whose_answer_was_lost_is_not_made_twice(house):
    operation = run(house, submit())
    row = Checkpoint.objects.get()
    staged = {
        "directory": row.artifacts_path.partition("/")[2],
        "digest": row.manifest_digest,
        "artifacts": row.manifest,
        "state": row.state,
        "step": row.step,
        "type": row.type,
        "metric": row.metric,
    }
    again = checkpoints.commit(operation_id=operation.pk, attempt=1, staged=staged)
    assert (again.pk, Checkpoint.objects.count()) == (row.pk, 1)


def test_words_that_no_database_can_hold_do_not_hide_how_it_ended(house):
    operation = run(house, submit("odd_words", at=3))
    assert (operation.state, operation.reason) == ("FAILED", Reason.JOB_ERROR)
    assert "a file named" in operation.error["message"]


def test_a_birth_that_comes_too_late_is_nobody_elses(nursery):
    nursery._hear({"key": "somebody:1", "pid": 2**22 + 1})
    child = nursery.start("test:2")
    assert child.pid != 2**22 + 1
    assert psutil.pid_exists(child.pid)
    child.end()
    assert has_ended(child.pid)
    child.close()
