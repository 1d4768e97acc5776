"""Workers whose time ends: what they say, what they claim, and when they stop."""

import time
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import work
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.lifecycle import Handback, Reason
from apps.operations.models import Attempt
from apps.operations.requests import services
from apps.operations.scheduling import handbacks, queue_status
from apps.operations.scheduling.reservations import available
from apps.operations.scheduling.shares import current
from apps.operations.scheduling.slots import RunningAttempt, Slots
from apps.workers import registry
from apps.workers.runtime import WorkerProcess
from tests.operations import rows
from trainops import serving, worker_end
from trainops.process.protocol import now
from trainops.runtime.checkpoint.manifest import CheckpointType, StagedCheckpoint

MIDNIGHT = time.mktime((2026, 3, 28, 0, 0, 0, 0, 0, -1))


@pytest.fixture
def berlin(monkeypatch):
    """The clock goes forward at 02:00 of 2026-03-29 and back at 03:00 of 2026-10-25."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "clock", "expected"),
    [
        ("04:30", "2026-03-28T01:00+01:00", "2026-03-28T04:30+01:00"),
        ("4:30", "2026-03-28T05:00+01:00", "2026-03-29T04:30+02:00"),
        ("04:30", "2026-03-28T04:30+01:00", "2026-03-29T04:30+02:00"),
        ("23:59:30", "2026-12-31T23:59:40+01:00", "2027-01-01T23:59:30+01:00"),
        ("04:30", "2026-10-24T12:00+02:00", "2026-10-25T04:30+01:00"),
        ("2026-11-27T04:30", "2026-03-28T01:00+01:00", "2026-11-27T04:30+01:00"),
        ("2026-11-27 04:30:00+00:00", "2026-03-28T01:00+01:00", "2026-11-27T04:30+00:00"),
        ("90s", "2026-03-28T01:00+01:00", "2026-03-28T01:01:30+01:00"),
        ("2h", "2026-03-29T01:00+01:00", "2026-03-29T04:00+02:00"),
    ],
)
def test_an_end_is_the_next_such_time_a_moment_or_a_duration(berlin, text, clock, expected):
    found = worker_end.moment(text, now=timezone.datetime.fromisoformat(clock).timestamp())
    assert found == timezone.datetime.fromisoformat(expected).timestamp()
    assert worker_end.moment(worker_end.written(found), now=0) == found


@pytest.mark.parametrize(
    "text", ["25:00", "4", "04:60", "0m", "10", "10d", "2026-11-27", "2026-13-01T00:00", "soon"]
)
def test_other_ends_are_refused_with_what_is_allowed(text):
    environment = {"TRAINOPS_WORKER_UNTIL": text, "TRAINOPS_WORKER_IDLE_EXIT": ""}
    with pytest.raises(ValueError, match=r"TRAINOPS_WORKER_UNTIL is '.*'; allowed: .*04:30"):
        serving.read(environment)
    with pytest.raises(ValueError, match=r"TRAINOPS_WORKER_IDLE_EXIT is '.*'; allowed: .*30m"):
        serving.read({"TRAINOPS_WORKER_IDLE_EXIT": text})


def test_the_environment_gives_the_end_of_a_worker():
    given = {"TRAINOPS_WORKER_UNTIL": "2h", "TRAINOPS_WORKER_IDLE_EXIT": "10m"}
    began_at = time.time()
    found = serving.read(given)
    assert began_at + 7200 <= found.ends_at <= time.time() + 7200
    assert found.idle_exit_seconds == 600
    assert serving.read({}).ends_at is serving.read({}).idle_exit_seconds is None


@pytest.fixture
def worker_process(db):
    runtime = work.WorkerRuntime()
    runtime.worker_id = "w"
    runtime.slots = Slots(count=1)
    runtime.disk_bytes = runtime.memory_bytes = 10**15
    return WorkerProcess(runtime)


def lasts(worker_process, seconds):
    worker_process.runtime.ends_at = time.time() + seconds


def reserved(settings):
    limits = settings.THRESHOLDS
    return limits.shutdown_timeout_seconds + limits.worker_end_margin_seconds


def claims_within(worker_process, seconds):
    lasts(worker_process, seconds)
    return available("w", worker_process.runtime.offer(), current()).count()


def test_what_cannot_reach_its_first_checkpoint_is_not_claimed(worker_process, settings):
    operation = rows.submitted(checkpoint={"every_seconds": 200})
    assert operation.first_checkpoint_seconds == 200
    assert claims_within(worker_process, reserved(settings) + 190) == 0
    assert claims_within(worker_process, reserved(settings) + 210) == 1
    operation.row.update(first_checkpoint_seconds=20)  # an attempt measured it
    assert claims_within(worker_process, reserved(settings) + 30) == 1
    operation.row.update(first_checkpoint_seconds=None)  # a row of an earlier version
    assert claims_within(worker_process, reserved(settings) + 1) == 1
    assert claims_within(worker_process, reserved(settings) - 1) == 0


def test_the_queue_status_says_that_workers_end(worker_process, settings):
    lasts(worker_process, reserved(settings) + 100)
    worker_process.runtime.kinds = ["training"]
    worker_process._be_registered()
    registry.heartbeat(worker_id="w")
    operation = rows.submitted(checkpoint={"every_seconds": 200})
    waits_for = queue_status.of_operation(services.get(operation.pk))
    assert waits_for.code == "WORKERS_ENDING"
    assert "takes about 200 s" in waits_for.message
    operation.row.update(first_checkpoint_seconds=50)
    assert queue_status.of_operation(services.get(operation.pk)).code != "WORKERS_ENDING"


def checkpoint(operation, step, type=CheckpointType.PERIODIC):
    return StagedCheckpoint(f"a0001-s{step:010d}-{type}", type, step, f"{step}", (), {})


@pytest.mark.database
def test_the_first_periodic_checkpoint_of_an_attempt_is_measured(db):
    operation = rows.claimed(checkpoint={"every_seconds": 200})
    started_at = timezone.now() - timedelta(seconds=41.5)
    Attempt.objects.filter(operation=operation).update(started_at=started_at)
    writer = ReportWriter(operation)
    writer.commit(checkpoint(operation, 1))
    assert services.get(operation.pk).first_checkpoint_seconds == 42
    Attempt.objects.filter(operation=operation).update(started_at=timezone.now())
    writer.commit(checkpoint(operation, 2))
    ReportWriter.continued(operation).commit(checkpoint(operation, 3))  # a request of its own
    assert services.get(operation.pk).first_checkpoint_seconds == 42


def test_a_checkpoint_at_a_stop_measures_nothing(db):
    operation = rows.claimed(checkpoint={"every_seconds": 200})
    ReportWriter(operation).commit(checkpoint(operation, 1, CheckpointType.SHUTDOWN))
    assert Checkpoint.objects.count() == 1
    assert services.get(operation.pk).first_checkpoint_seconds == 200


def test_a_worker_stops_once_and_in_time_to_save(worker_process, settings):
    limit = settings.THRESHOLDS.shutdown_timeout_seconds
    lasts(worker_process, limit + 5)
    assert worker_process.end.reason() == ""
    lasts(worker_process, limit - 1)
    assert "its time ends in" in worker_process.end.reason()
    assert worker_process.end.reason() == ""


def test_idle_time_counts_while_nothing_runs_since_it_could_claim(worker_process):
    runtime, end, clock = worker_process.runtime, worker_process.end, [0.0]
    end.clock, end.idle_exit_seconds = (lambda: clock[0]), 60
    assert end.reason() == ""
    clock[0] = 100  # the forkserver was not ready: nothing could be claimed
    runtime.forkserver = type("Ready", (), {"is_ready": True})()
    assert end.reason() == ""
    clock[0] = 155
    with runtime.slots.hold(RunningAttempt("op", 1, "", now())):
        assert end.reason() == ""
    clock[0] = 214
    assert end.reason() == ""
    clock[0] = 215
    assert end.reason() == "no work for 60 s"
    assert runtime.slots.free_slots == ()


def test_the_end_is_in_the_registry(worker_process):
    lasts(worker_process, 3600)
    worker_process.end.idle_exit_seconds = 600.0
    began_at = time.monotonic()
    worker_process._be_registered()
    worker = registry.get("w")
    passed = time.monotonic() - began_at + 0.1  # rounding
    assert abs(worker.ends_at.timestamp() - worker_process.runtime.ends_at) <= passed
    assert worker.idle_exit_seconds == 600


class TestOverHTTP:
    pytestmark = pytest.mark.django_db(transaction=True)

    def test_a_worker_gets_what_it_can_save_and_is_preempted_in_time(self, worker, settings):
        limits = settings.THRESHOLDS
        worker.register(ends_in_seconds=reserved(settings) + 100, idle_exit_seconds=60)
        operation = rows.submitted(checkpoint={"every_seconds": 200})
        path = f"{worker.worker_id}/claim"
        offer = {"kinds": ["training"], "memory_bytes": 10**12, "disk_bytes": 10**12}
        assert worker.data("POST", path, offer)["claimed"] is None
        operation.row.update(first_checkpoint_seconds=50)
        assert worker.data("POST", path, offer)["claimed"]["operation_id"] == operation.pk

        progress = {"step": 1, "total_steps": 9}
        attempt = f"{worker.worker_id}/attempts/{operation.pk}/1"
        assert worker.data("POST", f"{attempt}/progress", progress)["directive"] == "proceed"
        worker.register(
            ends_in_seconds=limits.shutdown_timeout_seconds - 1,
            running=[{"operation_id": operation.pk, "attempt": 1}],
        )
        answer = worker.data("POST", f"{attempt}/progress", progress)
        assert answer == {"directive": "preempt", "reason": "SHUTDOWN"}
        worker.data("POST", f"{attempt}/end", {"outcome": "cancelled"})
        assert services.get(operation.pk).state == "RESUMING"

    def test_a_preempted_attempt_is_handed_back(self, worker):
        worker.register()
        operation = rows.submitted(restart={"policy": "never"})
        attempt = worker.claim()
        handback = Handback(Reason.PREEMPTED, "makes room for another")
        assert handbacks.request(services.get(operation.pk), handback, actor="beat")
        progress = {"step": 1, "total_steps": 9}
        answer = worker.data("POST", f"{attempt}/progress", progress)
        assert answer == {"directive": "preempt", "reason": "PREEMPTED"}
        worker.data("POST", f"{attempt}/end", {"outcome": "cancelled"})
        after = services.get(operation.pk)
        assert (after.state, after.reason) == ("RESUMING", "PREEMPTED")
        assert after.attempts.get().note.startswith("makes room for another; nothing")

    @pytest.mark.parametrize("seconds", [-1, "soon", 10**9])
    def test_an_end_is_a_number_of_seconds(self, worker, seconds):
        body = {"worker_id": "box", "ends_in_seconds": seconds}
        _, error = worker.refused(400, "VALIDATION_ERROR", "POST", "register", body)
        assert "ends_in_seconds" in str(error)


def test_offers_without_an_end_are_as_before(db):
    rows.submitted(checkpoint={"every_seconds": 10**6})
    assert rows.claim(offer=replace(rows.OFFER, seconds_left=10.0)) is None
    assert rows.claim() is not None
