"""Real children, forked from a real forkserver, supervised in this process."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta

import psutil
import pytest
from django.db import OperationalError
from django.utils import timezone

from apps.checkpoints import services as checkpoints
from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.operations.attempts.attempt_log import CHUNK_CHARS
from apps.operations.attempts.children import ForkServer
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, LogChunk, MetricPoint, Operation
from apps.operations.requests import services
from apps.operations.scheduling import claims, sweeps
from apps.workers.runtime import WorkerProcess
from tests.memory import peak_bytes, reset_peak
from tests.operations.attempts import (
    Running,
    killed_after_its_first_checkpoint,
    media_of,
    run,
    submit,
)
from tests.waiting import has_ended, wait_until
from trainops.clock import seconds_from_now
from trainops.media.names import SYSTEM
from trainops.messages import encoded
from trainops.process.protocol import Committed, Ended, Staged, Start, Stop, Stopped, now
from trainops.process.wire import Hangup
from trainops.runtime.checkpoint import staged_json

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True), pytest.mark.database]
RARELY = {"every_epochs": 1000}


def test_it_runs_to_the_end_and_keeps_the_result(runtime):
    operation = run(runtime, submit())
    assert (operation.state, operation.step, operation.total_steps) == ("COMPLETED", 8, 8)
    assert operation.result["final"]["epoch"] == 2
    assert [c.type for c in Checkpoint.objects.all()] == ["final"]
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.from_step, attempt.to_step) == ("completed", 0, 8)
    assert operation.checkpoint_bytes == Checkpoint.objects.get().artifacts_size_bytes > 0
    assert attempt.timings["first_step"] > 0
    assert MetricPoint.objects.filter(name="val_loss").count() == 2


@pytest.mark.slow
def test_what_the_job_prints_is_kept(runtime):
    run(runtime, submit("print", at=1))
    log = "".join(LogChunk.objects.values_list("text", flat=True))
    assert "a line from the job" in log
    assert "a warning from the job" in log


@pytest.mark.slow
def test_a_flood_of_output_blocks_nothing_and_stays_within_its_limits(runtime, settings):
    limit = 2**19
    more = {"log_bytes_per_attempt": limit}
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=more)
    reset_peak()
    before = peak_bytes()
    operation = run(runtime, submit("flood", at=3))
    assert (operation.state, operation.step) == ("COMPLETED", 8)
    assert peak_bytes() - before < 40 * 10**6  # of 100 MB
    texts = list(LogChunk.objects.order_by("id").values_list("text", flat=True))
    assert limit - CHUNK_CHARS < sum(map(len, texts)) <= limit
    assert "completed" in texts[-1].splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "reason", "state"),
    [
        ("raise", Reason.JOB_ERROR, State.FAILED),
        ("nan", Reason.NON_FINITE_LOSS, State.FAILED),
        ("memory", Reason.OUT_OF_MEMORY, State.RESUMING),
        ("segfault", Reason.SEGMENTATION_FAULT, State.RESUMING),
        ("kill", Reason.PROCESS_KILLED, State.RESUMING),
        ("exit", Reason.PROCESS_EXITED, State.RESUMING),
        ("leave", Reason.PROCESS_EXITED, State.RESUMING),
    ],
)
def test_every_way_to_end_badly_is_distinguished(runtime, what, reason, state):
    operation = run(runtime, submit(what, at=3))
    assert (operation.reason, operation.state) == (reason, state)
    assert operation.error["code"] == reason
    assert Attempt.objects.get().ended_at is not None


@pytest.mark.slow
@pytest.mark.parametrize(("action", "state"), [("fail", "FAILED"), ("warn", "COMPLETED")])
def test_an_exploding_norm_fails_the_operation_or_is_in_its_log(runtime, action, state):
    limits = {"exploding_norm": 1e-9, "on_exploding_norm": action}
    operation = run(runtime, submit(max_grad_norm=1.0, limits=limits))
    log = "".join(LogChunk.objects.values_list("text", flat=True))
    assert operation.state == state
    if action == "fail":
        assert operation.reason == operation.error["code"] == Reason.EXPLODING_NORM
        log = operation.error["message"]
    assert "the gradient norm is " in log and "in step 1 (examples " in log
    assert "allowed by limits.exploding_norm: up to 1e-09" in log


@pytest.mark.slow
def test_an_error_of_the_job_shows_where_it_was_raised(runtime):
    operation = run(runtime, submit("raise", at=3))
    assert operation.error["message"] == "ValueError: the data of this step is broken"
    assert "scripted_model.py" in operation.error["traceback"]


@pytest.mark.slow
def test_a_failure_saves_the_last_safe_point(runtime):
    run(runtime, submit("raise", at=3, step_seconds=0.3))
    checkpoint = Checkpoint.objects.get()
    assert checkpoint.type == "failure"
    assert checkpoint.step in (1, 2)  # how fresh it is, the time that freezing took decides


@pytest.mark.slow
def test_a_cancel_saves_where_it_stopped(runtime, person):
    running = Running(runtime, submit(step_seconds=0.02, epochs=100, checkpoint=RARELY))
    running.until_step(3)
    services.cancel(operation_id=running.operation.pk, actor=person)
    running.held.stop = Operation.Stop.CANCEL
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", Reason.CANCELLED_BY_PERSON)
    checkpoint = Checkpoint.objects.get()
    assert (checkpoint.type, checkpoint.step) == ("cancellation", operation.step)
    assert f"step {checkpoint.step}" in operation.events.first().note


@pytest.mark.slow
def test_a_cancelled_operation_continues_to_the_identical_result(runtime, person):
    whole = run(runtime, submit(epochs=20))
    running = Running(runtime, submit(step_seconds=0.03, epochs=20)).until_step(10)
    services.cancel(operation_id=running.operation.pk, actor=person)
    running.held.stop = Operation.Stop.CANCEL
    services.resume(operation_id=running.ended().pk, actor=person)

    resumed = run(runtime, running.operation)

    assert resumed.state == "COMPLETED"
    assert weights(resumed) == weights(whole)
    assert curve(resumed) == curve(whole)
    assert resumed.attempts.first().receipt["exact"]


def weights(operation):
    manifest = operation.checkpoints.get(type="final").manifest
    return {entry["name"]: entry["blake3"] for entry in manifest if entry["name"] != "state.json"}


def curve(operation):
    """Return the points that a resume reproduces, without those that are measured by the clock."""
    points = MetricPoint.objects.filter(operation=operation, retired_by=None)
    points = points.exclude(name__startswith=SYSTEM)
    return list(points.order_by("name", "step").values_list("name", "step", "value"))


@pytest.mark.slow
def test_a_kill_ends_it_at_once_and_the_last_checkpoint_stands(runtime, person):
    operation = submit("hang", at=5, checkpoint={"every_steps": 4})
    running = Running(runtime, operation)
    wait_until(Checkpoint.objects.exists)
    running.held.stop = Operation.Stop.KILL
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", Reason.KILLED_BY_PERSON)
    assert Checkpoint.objects.first().step == 4


@pytest.mark.slow
def test_a_process_that_reaches_no_safe_point_is_killed_when_its_time_is_up(runtime):
    operation = submit("hang", at=3, limits={"cancel_timeout_seconds": 0.3})
    running = Running(runtime, operation).until_step(2)
    running.held.stop = Operation.Stop.CANCEL
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", Reason.CANCEL_TIMEOUT)


@pytest.mark.slow
def test_no_progress_is_a_stall(runtime):
    operation = run(runtime, submit("hang", at=3, limits={"stall_timeout_seconds": 0.5}))
    assert (operation.state, operation.reason) == ("RESUMING", Reason.STALLED)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"max_duration_seconds": 0.5}, {"max_duration": "1s"}])
def test_the_time_limit_saves_and_fails(runtime, limits):
    operation = run(runtime, submit(step_seconds=0.02, epochs=1000, limits=limits))
    assert (operation.state, operation.reason) == ("FAILED", Reason.TIME_LIMIT)
    assert Checkpoint.objects.latest("step").step == operation.step


def spent(operation, number, seconds, reason):
    """An attempt that ended an hour ago."""
    ended_at = timezone.now() - timedelta(hours=1)
    Attempt.objects.create(
        operation=operation, number=number, worker_id="worker-0", outcome="failed", reason=reason,
        started_at=ended_at - timedelta(seconds=seconds), ended_at=ended_at,
    )  # fmt: skip


@pytest.mark.slow
def test_the_time_limit_is_for_all_attempts_together(runtime):
    limits = {"max_duration_seconds": 60}
    operation = submit(step_seconds=0.02, epochs=1000, limits=limits)
    spent(operation, 1, 40, Reason.WORKER_LOST)
    spent(operation, 2, 19.9, Reason.SHUTDOWN)
    operation.row.update(attempt=2, state=State.RESUMING)
    operation = run(runtime, operation)
    assert (operation.state, operation.reason) == ("FAILED", Reason.TIME_LIMIT)
    third = Attempt.objects.get(number=3)
    assert third.ended_at - third.started_at < timedelta(seconds=20)


@pytest.mark.slow
def test_who_resumes_after_the_time_limit_grants_the_time_once_more(runtime):
    operation = submit(limits={"max_duration_seconds": 60})
    spent(operation, 1, 50, Reason.WORKER_LOST)
    spent(operation, 2, 10, Reason.TIME_LIMIT)
    spent(operation, 3, 40, Reason.SHUTDOWN)
    operation.row.update(attempt=3, state=State.RESUMING)
    assert Attempt.seconds_spent(operation.pk) == pytest.approx(40)
    assert run(runtime, operation).state == "COMPLETED"


@pytest.mark.slow
def test_a_shutdown_saves_and_hands_back_without_penalty(runtime):
    running = Running(runtime, submit(step_seconds=0.02, epochs=100, checkpoint=RARELY))
    running.until_step(3)
    runtime.slots.close(gone_in_seconds=10)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.SHUTDOWN)
    assert (operation.restarts_used, operation.not_before) == (0, None)
    assert Checkpoint.objects.get().type == "shutdown"


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("policy", ["never", "on_failure"])
def test_a_cancellation_while_a_shutdown_is_saved_cancels_it(runtime, monkeypatch, policy):
    restart = {"policy": policy}
    operation = submit(step_seconds=0.02, epochs=100, checkpoint=RARELY, restart=restart)
    running, commit = Running(runtime, operation), ReportWriter.commit

    def cancelled_meanwhile(self, staged, **more):
        if staged.type == "shutdown":
            services.cancel(operation_id=operation.pk, actor=None)
            running.held.stop = Operation.Stop.CANCEL  # as the worker's loop does
        return commit(self, staged, **more)

    monkeypatch.setattr(ReportWriter, "commit", cancelled_meanwhile)
    running.until_step(3)
    runtime.slots.close(gone_in_seconds=20)
    ended = running.ended()
    assert (ended.state, ended.reason) == ("CANCELLED", Reason.CANCELLED_BY_PERSON)
    assert Attempt.objects.get().reason == Reason.SHUTDOWN
    assert Checkpoint.objects.get().type == "shutdown"


class ClosedForkServer(ForkServer):
    def __init__(self):
        super().__init__()
        self.is_closed = threading.Event()

    def close(self):
        super().close()
        self.is_closed.set()


@pytest.mark.slow
def test_what_is_claimed_while_the_worker_stops_is_handed_back(runtime, monkeypatch):
    runtime.forkserver = ClosedForkServer()
    runtime.forkserver.open()
    wait_until(lambda: runtime.forkserver.is_ready)
    claim, is_claiming = claims.claim, threading.Event()

    def slow(**offered):
        is_claiming.set()
        runtime.forkserver.is_closed.wait(1)
        return claim(**offered)

    monkeypatch.setattr(claims, "claim", slow)
    running = Running(runtime, submit())
    is_claiming.wait(30)
    runtime.slots.close(gone_in_seconds=20)
    WorkerProcess(runtime).leave()
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.SHUTDOWN)
    assert Attempt.objects.get().outcome == "preempted"
    assert runtime.forkserver.is_closed.is_set()


@pytest.mark.slow
def test_a_worker_that_must_go_does_not_wait_for_a_job_that_hangs(runtime):
    running = Running(runtime, submit("hang", at=3)).until_step(2)
    runtime.slots.close(gone_in_seconds=0.2)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.SHUTDOWN)


@pytest.mark.slow
def test_a_ghost_stops_itself_and_changes_nothing(runtime):
    running = Running(runtime, submit(step_seconds=0.02, epochs=1000)).until_step(3)
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
def test_an_attempt_whose_lease_cannot_be_renewed_is_ended_by_its_supervisor(runtime, settings):
    running = Running(runtime, submit("hang", at=3)).until_step(2)
    running.held.renewed_at = now() - settings.THRESHOLDS.fence_kill_seconds - 1
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.LEASE_LOST)


@pytest.mark.parametrize("what", ["hang", "hold_gil"])
@pytest.mark.slow
def test_a_child_that_is_granted_no_more_time_ends_itself(forkserver, what):
    """Also with the interpreter's lock held: the kernel's timer needs nothing of Python."""
    # A grant cannot be shortened, and how long a child takes to its second step is not known.
    for grant_seconds in (5, 20, 80):
        with suppress(Hangup):
            child = start(forkserver, what, grant_seconds)
            break
    began = time.monotonic()
    assert child.wait(grant_seconds + 10)
    assert time.monotonic() - began < grant_seconds + 5
    child.close()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["hang", "nothing"])
def test_a_child_whose_supervisor_hangs_up_ends_itself(forkserver, what):
    child = start(forkserver, what, grant_seconds=3600)
    child.wire.close()
    assert child.wait(10)
    child.close()


@pytest.mark.slow
def test_children_die_with_the_forkserver_even_with_the_lock_held():
    forkserver = ForkServer()
    forkserver.open()
    wait_until(lambda: forkserver.is_ready)
    child = start(forkserver, "hold_gil", grant_seconds=240)
    forkserver._closed = True
    forkserver._process.kill()
    wait_until(lambda: has_ended(child.pid))
    child.close()


# A worker in a process of its own: it starts a child that holds its interpreter's lock, so that it
# cannot see the end of the wire, and tells its number.
WORKER = """
import json, sys, time
from apps.operations.attempts.children import ForkServer
from trainops.media.names import SYSTEM
forkserver = ForkServer()
forkserver.open()
child = forkserver.start("test:1", warm_up_seconds=60)
child.wire._end.sendall(sys.argv[1].encode())
while all(getattr(message, "step", None) != 1 for message in child.wire.read()):
    pass
print(child.pid, flush=True)
time.sleep(3600)
"""


@pytest.mark.slow
def test_children_die_with_the_forkserver_while_their_worker_is_frozen():
    """Nobody is left to kill them, and nothing hangs up: the kernel does it."""
    message = encoded(start_message(misbehaving("hold_gil"), 3600)).decode()
    command = [sys.executable, "-c", WORKER, message]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        pid = int(worker.stdout.readline())
        (forkserver,) = psutil.Process(worker.pid).children()
        worker.send_signal(signal.SIGSTOP)
        forkserver.kill()
        try:
            wait_until(lambda: has_ended(pid))
        finally:
            worker.kill()


@pytest.mark.slow
def test_an_attempt_ends_while_the_forkserver_is_frozen(runtime):
    """It reports no end and reaps nothing until it wakes up; the slot is free before."""
    running = Running(runtime, submit("hang", at=3)).until_step(2)
    pid = running.pid
    forkserver = psutil.Process(runtime.forkserver._process.pid)
    forkserver.suspend()
    try:
        running.held.stop = Operation.Stop.KILL
        running.ended()
        assert has_ended(pid)
    finally:
        forkserver.resume()


@pytest.mark.slow
def test_nothing_of_the_process_group_is_left(runtime):
    running = Running(runtime, submit("ignore_and_fork", at=3)).until_step(2)
    pid = running.pid
    wait_until(lambda: sleepers(pid))
    (sleeper,) = sleepers(pid)
    running.held.stop = Operation.Stop.KILL
    running.ended()
    assert not psutil.pid_exists(pid)
    assert has_ended(sleeper)


def sleepers(pid):
    return [each.pid for each in psutil.Process(pid).children() if each.name() == "sleep"]


def start(forkserver, what, grant_seconds):
    """Start a child by hand and wait until it is where it misbehaves. Raises Hangup: it ended."""
    child = forkserver.start("test:1")
    child.wire.send(start_message(misbehaving(what), grant_seconds))
    try:
        until_it_misbehaves(child)
    except Hangup:
        child.end()
        child.close()
        raise
    return child


def misbehaving(what):
    """Misbehaves at the end of its second step: there is time to report the first."""
    return submit(what, at=2, step_seconds=0.5, epochs=100_000)


def start_message(operation, grant_seconds):
    return Start(
        kind="training",
        config=operation.config,
        inputs={},
        directory=storage.operation_directory(operation.pk),
        operation_id=operation.pk,
        attempt=1,
        config_hash=operation.config_hash,
        input_digests={},
        has_self_check=operation.config["checkpoint"]["self_check"],
        reserve_bytes=0,
        storage_id="",
        candidates=(),
        environment={"CUDA_VISIBLE_DEVICES": ""},
        grant_until=now() + grant_seconds,
    )


@pytest.mark.slow
def test_a_stop_that_comes_with_the_start_is_heard(forkserver):
    child = forkserver.start("test:1")
    sent = [start_message(submit(epochs=300), 300), Stop("PREEMPT")]
    child.wire._end.sendall(b"".join(map(encoded, sent)))
    heard = []
    while not any(isinstance(each, Ended) for each in heard):
        heard += child.wire.read()
        if heard and isinstance(heard[-1], Staged):
            child.wire.send(Committed())
    assert heard[-1] == Stopped("PREEMPT", is_signalled=False)
    child.end()
    child.close()


def until_it_misbehaves(child):
    """It does so in its second step, and reports the first one before."""
    while all(getattr(message, "step", None) != 1 for message in child.wire.read()):
        pass


@pytest.mark.slow
def test_what_an_absent_database_could_not_commit_is_adopted_by_the_next_owner(
    runtime, monkeypatch, settings
):
    whole = run(runtime, submit(epochs=20, media=True))
    more = {"media": True, "checkpoint": {"every_epochs": 1000}}
    operation = submit(step_seconds=0.1, epochs=20, **more)
    # Nobody renews, as without a database: the child saves when a third of its grant is left.
    limits = settings.THRESHOLDS
    settings.THRESHOLDS = limits.model_copy(update={"child_deadline_seconds": 6.0})
    running = Running(runtime, operation).until_step(10)
    held = running.held

    write, commit, was_tried = ReportWriter._write, ReportWriter.commit, threading.Event()
    monkeypatch.setattr(ReportWriter, "_write", away)
    monkeypatch.setattr(
        ReportWriter, "commit", lambda *args, **more: was_tried.set() or commit(*args, **more)
    )
    wait_until(was_tried.is_set)
    held.renewed_at = now() - settings.THRESHOLDS.orphan_timeout_seconds - 1
    lost = running.ended()
    assert (lost.state, Checkpoint.objects.filter(operation=lost).count()) == ("RUNNING", 0)

    monkeypatch.setattr(ReportWriter, "_write", write)
    settings.THRESHOLDS = limits
    lost.row.update(lease_expires_at=seconds_from_now(-1))
    sweeps.recover_lost(actor="beat")
    lost.row.update(not_before=None)
    resumed = run(runtime, lost)

    assert resumed.state == "COMPLETED"
    assert resumed.attempts.get(number=2).from_step >= 10
    assert (weights(resumed), curve(resumed)) == (weights(whole), curve(whole))
    assert media_of(resumed) == media_of(whole)
    assert resumed.events.filter(what="ADOPTED").exists()


def away(writer):
    raise OperationalError("the database is away")


@pytest.mark.slow
def test_a_chosen_older_checkpoint_holds_until_its_branch_has_one_of_its_own(runtime, person):
    """Else the next restart goes back to it again, and retention prefers the branch given up."""
    keep = {"every_steps": 4, "keep_last": 2, "keep_best": 0}
    operation = run(runtime, submit("raise", at=19, step_seconds=0.1, epochs=10, checkpoint=keep))
    older = operation.checkpoints.filter(type="periodic").earliest("step")
    newest = operation.checkpoints.newest_first().first()
    assert (older.step < newest.step, operation.state) == (True, "FAILED")

    operation.checkpoints.update(is_best=False)
    operation.checkpoints.filter(pk=older.pk).update(is_best=True)
    resumed = services.resume(operation_id=operation.pk, actor=person, checkpoint_id="best")
    assert resumed.operation.resume_from == older.pk
    again = run(runtime, operation)  # until the 19th step of this process, too
    assert again.attempts.get(number=2).from_step == older.step
    assert again.resume_from == ""
    newest = again.checkpoints.newest_first().first()
    assert (newest.attempt, newest.step > older.step) == (2, True)

    services.resume(operation_id=operation.pk, actor=person)
    run(runtime, operation)
    assert services.get(operation.pk).attempts.get(number=3).from_step == newest.step


@pytest.mark.slow
def test_with_every_checkpoint_gone_bad_it_does_not_start_over(runtime):
    operation = killed_after_its_first_checkpoint(runtime, every_steps=4)
    operation.checkpoints.update(health="corrupted")
    operation.row.update(not_before=None)
    operation = run(runtime, operation)
    assert (operation.state, operation.reason) == ("FAILED", Reason.CHECKPOINT_CORRUPTED)


def test_a_checkpoint_of_a_newer_format_is_not_taken_for_a_damaged_one(runtime):
    operation = killed_after_its_first_checkpoint(runtime, every_steps=4)
    operation.checkpoints.update(format_version=2)
    operation.row.update(not_before=None)
    operation = run(runtime, operation)
    assert (operation.state, operation.reason) == ("RESUMING", Reason.PLATFORM_ERROR)
    assert "it has a checkpoint of format 2" in operation.error["message"]
    assert {each.health for each in operation.checkpoints.all()} == {"healthy"}


@pytest.mark.slow
def test_a_commit_whose_answer_was_lost_is_not_made_twice(runtime):
    operation = run(runtime, submit())
    row = Checkpoint.objects.get()
    values = {
        "directory": row.artifacts_path.partition("/")[2],
        "digest": row.manifest_digest,
        "artifacts": row.manifest,
        "state": row.state,
        "step": row.step,
        "type": row.type,
        "metric": row.metric,
    }
    staged = staged_json.from_json(values)
    again = checkpoints.commit(operation_id=operation.pk, attempt=1, staged=staged)
    assert (again.pk, Checkpoint.objects.count()) == (row.pk, 1)


@pytest.mark.slow
def test_words_that_no_database_can_hold_do_not_hide_how_it_ended(runtime):
    operation = run(runtime, submit("odd_words", at=3))
    assert (operation.state, operation.reason) == ("FAILED", Reason.JOB_ERROR)
    assert "a file named" in operation.error["message"]


def test_a_birth_that_comes_too_late_belongs_to_no_other_attempt(forkserver):
    forkserver._hear({"key": "somebody:1", "pid": 2**22 + 1})
    child = forkserver.start("test:2")
    assert child.pid != 2**22 + 1
    assert psutil.pid_exists(child.pid)
    child.end()
    assert has_ended(child.pid)
    child.close()
