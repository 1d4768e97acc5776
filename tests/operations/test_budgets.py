"""Budgets: hours after which running operations are handed back; use of deleted operations."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from apps.operations.lifecycle import Handback, Reason, State
from apps.operations.models import Attempt, Operation, PastUse, Share
from apps.operations.models.compute_time import Period, by_day
from apps.operations.requests import deletion, estimates, services
from apps.operations.requests import shares as share_requests
from apps.operations.scheduling import budgets, claims, handbacks, queue_status, shares, stuck
from apps.operations.scheduling.blocking import BlockingReason
from apps.operations.subtasks import services as subtasks
from apps.workers import maintenance
from apps.workers.runtime import WorkerProcess
from apps.workers.usage import weekly_usage
from tests.operations import rows
from tests.operations.attempts import run
from tests.operations.test_preemption import (
    at_its_first_checkpoint,
    begin,
    hand_back,
    offer,
    result_of,
    scripted,
    serve,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.postgres]
GPUS = ["GPU-1", "GPU-2"]


@pytest.fixture
def ana():
    return User.objects.create_user("ana")


def submitted(owner, project="", **config):
    operation = rows.submitted(owner, **config)
    operation.row.update(project=project)
    return services.get(operation.pk)


def claim(gpus=()):
    found = claims.claim(worker_id="a", host="a", offer=offer(8, gpus=gpus))
    return found and services.get(found.pk)


def running(owner, project="", *, gpus=(), minutes=30, **config):
    operation = submitted(owner, project, **config)
    assert claim(gpus).pk == operation.pk
    begin(operation, minutes * 60)
    return services.get(operation.pk)


def handed_back():
    return dict(
        Attempt.objects.filter(handback_reason=Reason.BUDGET_USED_UP).values_list(
            "operation_id", "handback_note"
        )
    )


def total(owner=None, project="", **limits):
    return Share.objects.create(owner=owner, project=project, budget_period=Period.TOTAL, **limits)


def status(operation):
    return queue_status.of_operation(services.get(operation.pk))


@pytest.mark.parametrize(
    ("period", "moment", "begin", "end"),
    [
        ("week", "2026-11-29T23:59:59", "2026-11-23", "2026-11-30"),
        ("week", "2026-11-30T00:00:00", "2026-11-30", "2026-12-07"),
        ("month", "2026-12-31T23:59:59", "2026-12-01", "2027-01-01"),
        ("month", "2028-02-29T12:00:00", "2028-02-01", "2028-03-01"),
        ("month", "2026-01-01T00:00:00", "2026-01-01", "2026-02-01"),
        ("total", "2026-12-31T23:59:59", "1970-01-01", None),
    ],
)
def test_weeks_and_months_begin_at_midnight_in_utc(period, moment, begin, end):
    def utc(text):
        return text and datetime.fromisoformat(text).replace(tzinfo=UTC)

    assert Period(period).bounds(utc(moment)) == (utc(begin), utc(end))


def test_what_runs_beyond_a_budget_of_compute_hours_is_handed_back(ana):
    total(ana, budget_compute_hours=0.9)
    first, second = running(ana), running(ana)
    assert budgets.enforce(actor="beat") == 2
    problem = "ana has used 1.0 of 0.9 compute hours of its budget in total; it is not renewed"
    assert handed_back() == {first.pk: problem, second.pk: problem}
    assert budgets.enforce(actor="beat") == 0  # once
    assert first.events.first().what == "HANDBACK_REQUESTED"


def test_within_its_budget_an_operation_continues(ana):
    total(ana, budget_compute_hours=1.1, budget_gpu_hours=0)
    running(ana, device="cpu"), running(ana, device="cpu")
    assert budgets.enforce(actor="beat") == 0
    assert handed_back() == {}


def test_a_budget_of_gpu_hours_leaves_operations_without_gpus(ana):
    total(project="vision", budget_gpu_hours=0.9)
    on_gpu = running(ana, "vision", gpus=GPUS, device="cuda", minutes=60)
    on_cpu, other = running(ana, "vision", device="cpu"), running(ana, gpus=GPUS, device="cuda")
    for _ in range(2):  # the second one withdraws nothing
        maintenance.sweep(actor="beat")
        assert list(handed_back()) == [on_gpu.pk]
    assert {on_cpu.pk, other.pk}.isdisjoint(handed_back())
    waiting = submitted(ana, "vision", device="cuda")
    assert claim(GPUS) is None
    without = submitted(ana, "vision", device="cpu")
    assert claim().pk == without.pk
    assert claim() is None
    assert services.get(waiting.pk).state == State.PENDING


def test_each_process_counts(ana):
    total(ana, budget_compute_hours=0.9)
    operation = submitted(ana)
    operation.row.update(processes=2)
    assert claim().pk == operation.pk
    begin(operation, 30 * 60)
    assert budgets.enforce(actor="beat") == 1


def test_waiting_operations_name_the_budget_and_its_renewal_and_a_raise_releases_them(ana):
    serve("a", slots=8)
    share = Share.objects.create(
        project="vision", budget_compute_hours=1e-6, budget_period=Period.MONTH
    )
    running(ana, "vision", minutes=0)
    Attempt.objects.update(started_at=timezone.now() - timedelta(seconds=1))
    waiting = submitted(ana, "vision")
    assert claim() is None
    found = status(waiting)
    assert found.code is BlockingReason.BUDGET_USED_UP
    _, end = Period.MONTH.bounds(timezone.now())
    assert found.message == (
        "Waiting for a budget: project vision has used 0.0 of 1e-06 compute hours of its budget "
        f"this month; it is renewed on {end:%Y-%m-%d} at 00:00 UTC."
    )
    assert stuck.reason_of(found) is None
    known = estimates.estimate(
        kind="training", config={"recipe": "digits"}, owner=ana, project="vision"
    )
    assert known.status == found
    share.budget_compute_hours = 10
    share_requests.save(share, [])
    assert status(waiting).code is BlockingReason.SOON
    assert claim().pk == waiting.pk


def test_a_budget_of_nothing_is_a_share_that_is_too_small(ana):
    serve("a", slots=8)
    total(ana, budget_compute_hours=0)
    found = status(submitted(ana))
    assert found.code is BlockingReason.SHARE_TOO_SMALL
    assert "ana has a budget of 0 compute hours" in found.message


def test_the_hours_before_the_period_do_not_count(ana):
    Share.objects.create(owner=ana, budget_compute_hours=24 * 8, budget_period=Period.WEEK)
    operation = running(ana, minutes=60 * 24 * 30)
    assert budgets.enforce(actor="beat") == 0
    Share.objects.update(budget_period=Period.TOTAL)
    assert budgets.enforce(actor="beat") == 1
    assert list(handed_back()) == [operation.pk]


def end(operation, hours=1.0, started_at=None):
    """End an operation whose attempt took so long."""
    claims.finish(services.get(operation.pk), State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)
    started_at = started_at or timezone.now() - timedelta(hours=hours)
    operation.attempts.update(started_at=started_at, ended_at=started_at + timedelta(hours=hours))


def used(owner):
    shares.past_hours.cache_clear()
    (row,) = (each for each in share_requests.used() if each["owner"] == owner.username)
    return row["used"]


def test_hours_of_deleted_operations_count(ana):
    total(ana, budget_gpu_hours=5, budget_compute_hours=5, gpu_hours_per_week=5)
    operation = running(ana, gpus=GPUS, device="cuda")
    operation.row.update(processes=2)
    operation.attempts.update(device=",".join(GPUS))
    monday, _ = Period.WEEK.bounds(timezone.now())
    end(operation, hours=0.5, started_at=monday)
    before, report = used(ana), weekly_usage("owner", 2)
    assert before["gpu_hours"] == before["budget_gpu_hours"] == pytest.approx(1.0)
    assert before["budget_compute_hours"] == pytest.approx(1.0)
    deletion.delete(operation_id=operation.pk, actor=ana)
    assert used(ana) == before
    assert weekly_usage("owner", 2) == report
    assert [each.num_attempts for each in report] == [1]


def test_hours_of_a_parents_subtasks_count_once_it_has_its_result(ana):
    total(ana, budget_compute_hours=5)
    parent = submitted(ana)
    parent.row.update(takes_slot=False, state=State.COMPLETED)
    for index in range(2):
        child = rows.subtask_of(parent, State.PENDING, index)
        child.row.update(owner=ana)
        assert claim().pk == child.pk
        end(child, hours=1)
    assert used(ana)["budget_compute_hours"] == pytest.approx(2.0)
    subtasks.settle(services.get(parent.pk))
    assert not parent.subtasks.exists()
    assert used(ana)["budget_compute_hours"] == pytest.approx(2.0)
    assert sum(each.num_attempts for each in weekly_usage("kind", 2)) == 2


def test_kept_use_is_split_by_day_and_added_up(ana):
    for _ in range(2):
        operation = running(ana, "vision")
        end(operation, hours=30, started_at=datetime(2026, 3, 7, 20, tzinfo=UTC))
        deletion.delete(operation_id=operation.pk, actor=ana)
    kept = PastUse.objects.values_list("day", "num_attempts", "compute_seconds", "gpu_seconds")
    days = [datetime(2026, 3, number, tzinfo=UTC).date() for number in (7, 8, 9)]
    assert list(kept) == [
        (days[0], 2, 2 * 4 * 3600.0, 0.0),
        (days[1], 0, 2 * 24 * 3600.0, 0.0),
        (days[2], 2, 2 * 2 * 3600.0, 0.0),  # a Monday: in another week they count again
    ]
    assert {(each.owner, each.project, each.kind) for each in PastUse.objects.all()} == {
        (ana, "vision", "training")
    }


def test_days_begin_at_midnight_in_utc():
    begin = datetime(2026, 3, 7, 23, tzinfo=UTC)
    assert [time for _, time in by_day(begin, begin + timedelta(hours=26))] == [
        timedelta(hours=each) for each in (1, 24, 1)
    ]
    assert list(by_day(begin, begin)) == []


def test_ended_attempts_are_not_read_again_for_some_seconds(
    ana, monkeypatch, django_assert_num_queries
):
    monkeypatch.setattr(shares, "REMEMBERED_SECONDS", 1_000_000)
    total(ana, budget_compute_hours=5)
    end(running(ana), started_at=timezone.now() - timedelta(days=30))
    assert used(ana)["budget_compute_hours"] == pytest.approx(1.0)
    running(ana)
    Attempt.objects.exclude(ended_at=None).delete()
    with django_assert_num_queries(3):  # shares, running operations, hours that may change
        known = shares.current().owners[ana.pk]
    assert known.budget.used_compute_hours == pytest.approx(1.5, abs=0.01)


def test_an_attempt_that_ends_meanwhile_counts_further(ana):
    total(ana, budget_compute_hours=0.4)
    operation = running(ana)
    assert budgets.enforce(actor="beat") == 1
    claims.finish(operation, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)
    assert shares.current().owners[ana.pk].budget_problem(on_gpus=False)


def test_a_claim_under_locks_reads_no_hours(ana, django_assert_num_queries):
    total(ana, budget_compute_hours=5, gpu_hours_per_week=5)
    running(ana)
    operation, known = submitted(ana), shares.current()
    with transaction.atomic(), django_assert_num_queries(3):  # two locks, running operations
        (allowance,) = shares.locked(operation, known)
    assert allowance == known.owners[ana.pk]
    assert (allowance.slots, allowance.budget.used_compute_hours > 0.4) == (1, True)


def test_after_a_budget_of_gpu_hours_no_worker_takes_what_may_use_gpus(ana):
    serve("a", slots=8)
    total(ana, budget_gpu_hours=0.4)
    operation = running(ana, gpus=GPUS, device="auto")
    assert budgets.enforce(actor="beat") == 1
    hand_back(operation, Reason.BUDGET_USED_UP)
    assert claim() is None  # on a CPU it would compute other bits
    allowed = shares.current().allowed(on_gpus=False)
    assert not Operation.objects.due().filter(allowed).exists()
    assert status(operation).code is BlockingReason.BUDGET_USED_UP
    without = submitted(ana, device="cpu")
    assert claim().pk == without.pk
    Share.objects.update(budget_gpu_hours=5)
    assert claim(GPUS).pk == operation.pk


@pytest.mark.parametrize("change", ["raise", "removal"])
def test_requests_that_no_budget_asks_for_any_more_are_withdrawn(ana, change):
    total(ana, budget_compute_hours=0.9)
    total(project="vision", budget_compute_hours=0.4)
    operation, other = running(ana), running(ana, "vision")
    assert budgets.enforce(actor="beat") == 2
    if change == "raise":
        Share.objects.filter(owner=ana).update(budget_compute_hours=5)
    else:
        Share.objects.filter(owner=ana).delete()
    assert budgets.enforce(actor="beat") == 0
    assert list(handed_back()) == [other.pk]
    assert handbacks.requested([(operation.pk, 1)]) == {}
    event = operation.events.first()
    assert (event.what, event.actor) == ("HANDBACK_WITHDRAWN", "beat")
    assert event.note.startswith("ana has used 1.0 of 0.9 compute hours")
    Share.objects.all().delete()
    assert budgets.enforce(actor="beat") == 0
    assert handed_back() == {}


def test_days_of_kept_use_are_written_in_one_order(ana):
    parent = submitted(ana)
    for index, day in enumerate((9, 7, 8)):
        child = rows.subtask_of(parent, State.PENDING, index)
        child.row.update(project="abc"[-day % 3])
        parent.row.update(takes_slot=False)
        assert claim().pk == child.pk
        end(child, started_at=datetime(2026, 3, day, 20, tzinfo=UTC))
    PastUse.keep(Operation.objects.filter(is_subtask=True))
    days = PastUse.objects.order_by("pk").values_list("day__day", flat=True)
    assert list(days) == [7, 8, 9]


NEWER = "FROM_THE_FUTURE"


@pytest.mark.parametrize(
    ("state", "not_before"),
    [
        (State.PENDING, False),
        (State.RESUMING, False),
        (State.RESUMING, True),
        (State.FAILED, False),
        (State.CANCELLED, False),
    ],
)
def test_pages_and_the_api_show_a_reason_of_a_newer_version(admin_client, ana, state, not_before):
    operation = running(ana)
    end(operation)
    later = timezone.now() + timedelta(hours=1) if not_before else None
    operation.row.update(state=state, reason=NEWER, not_before=later)
    operation.attempts.update(reason=NEWER)
    paths = (
        "/",
        f"/operations/{operation.pk}",
        "/api/v1/operations",
        f"/api/v1/operations/{operation.pk}",
        f"/api/v1/operations/{operation.pk}/attempts",
    )
    for path in paths:
        answer = admin_client.get(path, follow=True)
        assert answer.status_code == 200, path
        is_shown = path != "/" or state is State.FAILED
        assert not is_shown or NEWER in answer.content.decode(), path


def test_a_request_of_a_newer_version_is_like_a_stop_of_the_worker(ana):
    operation = running(ana)
    operation.attempts.update(handback_reason=NEWER, handback_note="as it says")
    expected = Handback(Reason.SHUTDOWN, f"{NEWER}: as it says")
    assert handbacks.requested([(operation.pk, 1)]) == {(operation.pk, 1): expected}
    assert handbacks.of_attempt(operation.pk, 1) == expected


def test_a_stop_for_a_reason_of_a_newer_version_is_recorded_with_it(ana):
    operation = running(ana)
    operation.row.update(stop_reason=NEWER)
    claims.finish(
        operation,
        State.CANCELLED,
        outcome=Attempt.Outcome.CANCELLED,
        reason=Reason.CANCELLED_BY_PERSON,
    )
    assert services.get(operation.pk).reason == operation.attempts.get().reason == NEWER


@pytest.mark.slow
def test_an_operation_beyond_its_budget_is_saved_and_continues_after_a_raise(runtime, ana):
    serve(runtime.worker_id)
    undisturbed = run(runtime, scripted())
    share = total(ana, budget_compute_hours=1)
    low = scripted(owner=ana)
    attempt = at_its_first_checkpoint(runtime, low)  # an hour ago
    maintenance.sweep(actor="beat")
    WorkerProcess(runtime)._read_stop_requests()
    handed_back = attempt.ended()
    assert (handed_back.state, handed_back.reason) == (State.RESUMING, Reason.BUDGET_USED_UP)
    ended = handed_back.attempts.get()
    assert ended.outcome == Attempt.Outcome.PREEMPTED
    assert ended.note.startswith("ana has used 1.0 of 1 compute hours of its budget in total")
    assert "; saved: shutdown checkpoint" in ended.note
    assert run(runtime, low).state == State.RESUMING  # it is not claimed
    share.budget_compute_hours = 3
    share_requests.save(share, [])
    resumed = run(runtime, low)
    assert (resumed.state, resumed.restarts_used) == (State.COMPLETED, 0)
    assert result_of(resumed) == result_of(undisturbed)
