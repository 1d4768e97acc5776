"""Shares: limits of owners and projects, and whose operation goes first."""

import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation, Share
from apps.operations.placement import GB, Device, FreeSlot
from apps.operations.requests import services
from apps.operations.scheduling import claims, queue_status, shares
from apps.operations.scheduling.blocking import BlockingReason
from apps.workers import registry
from tests.operations import rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
GPUS = [Device(f"GPU-{number}", 24 * GB) for number in range(8)]
ON_GPUS = replace(rows.OFFER, free_slots=[FreeSlot(True, GPUS, has_gpus=True, num_slots=8)])
ON_SLOTS = replace(rows.OFFER, free_slots=[FreeSlot(num_slots=8)])


@pytest.fixture
def ana():
    return User.objects.create_user("ana")


@pytest.fixture
def ben():
    return User.objects.create_user("ben")


def submitted(owner, project="", **given):
    operation = rows.submitted(owner, **given)
    operation.row.update(project=project)
    return operation


def claimed(offer=ON_SLOTS):
    operation = rows.claim(offer=offer)
    return operation and operation.pk


def end(operation):
    claims.finish(services.get(operation.pk), State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)


@contextmanager
def thresholds(settings, **values):
    before = settings.THRESHOLDS
    settings.THRESHOLDS = before.model_copy(update=values)
    yield
    settings.THRESHOLDS = before


def test_an_owner_at_the_limit_of_slots_waits_and_holds_up_no_other(ana, ben):
    Share.objects.create(owner=ana, max_slots=1)
    first, second, of_ben = submitted(ana), submitted(ana, priority=5), submitted(ben)
    assert [claimed(), claimed(), claimed()] == [second.pk, of_ben.pk, None]
    end(second)
    assert [claimed(), claimed()] == [first.pk, None]


def test_an_operation_of_several_processes_takes_a_slot_of_its_share_for_each(ana, monkeypatch):
    Share.objects.create(owner=ana, max_slots=3)
    operations = [submitted(ana) for _ in range(3)]
    for each in operations[:2]:
        each.row.update(processes=2)
    assert [claimed() for _ in range(3)] == [operations[0].pk, operations[2].pk, None]


def test_the_limit_of_a_project_counts_for_all_its_owners(ana, ben):
    Share.objects.create(project="vision", max_slots=1)
    in_project, of_ben = submitted(ana, "vision"), submitted(ben, "vision")
    outside = submitted(ben)
    assert [claimed(), claimed(), claimed()] == [in_project.pk, outside.pk, None]
    end(in_project)
    assert claimed() == of_ben.pk


def test_a_limit_of_gpus_leaves_operations_on_the_cpu(ana):
    Share.objects.create(owner=ana, max_gpus=1)
    first, second = submitted(ana), submitted(ana, device="cuda")
    on_cpu = submitted(ana, device="cpu")
    assert [claimed(ON_GPUS) for _ in range(3)] == [first.pk, on_cpu.pk, None]
    end(first)
    assert claimed(ON_GPUS) == second.pk


def test_a_worker_without_gpus_takes_what_needs_none_beyond_a_limit_of_gpus(ana):
    Share.objects.create(owner=ana, max_gpus=0)
    either = submitted(ana)
    assert claimed(ON_GPUS) is None
    assert claimed(ON_SLOTS) == either.pk


def test_used_gpu_hours_of_the_week_keep_operations_from_gpus(ana):
    share = Share.objects.create(owner=ana, gpu_hours_per_week=2)
    first = submitted(ana, device="cuda")
    first.row.update(processes=2)
    assert claimed(ON_GPUS) == first.pk
    begun = max(seconds_ago(3 * 3600), shares.monday_of(seconds_ago(0)))
    Attempt.objects.update(started_at=begun)
    hours = 2 * (seconds_ago(0) - begun).total_seconds() / 3600
    share.gpu_hours_per_week = hours - 0.001
    share.save()
    waiting = submitted(ana, device="cuda")
    assert claimed(ON_GPUS) is None
    Share.objects.update(gpu_hours_per_week=hours + 1)
    assert claimed(ON_GPUS) == waiting.pk


def seconds_ago(seconds):
    return timezone.now() - timedelta(seconds=seconds)


def test_the_thresholds_limit_owners_without_a_share(ana, ben, settings):
    Share.objects.create(owner=ben)
    mine = [submitted(ana) for _ in range(2)]
    of_ben = [submitted(ben) for _ in range(2)]
    of_none = [submitted(None) for _ in range(2)]
    with thresholds(settings, max_slots_per_person=1):
        taken = {claimed() for _ in range(6)}
    assert taken == {mine[0].pk, *(each.pk for each in of_ben + of_none), None}


def test_an_operation_that_needs_more_than_the_default_limit_is_not_claimed(ana, settings):
    submitted(ana).row.update(processes=2)
    with thresholds(settings, max_slots_per_person=1):
        assert claimed() is None
    assert claimed() is not None


def test_the_owner_with_the_least_use_goes_first_within_a_priority(ana, ben):
    of_ana = [submitted(ana) for _ in range(3)]
    of_ben = [submitted(ben) for _ in range(2)]
    urgent = submitted(ana, priority=1)
    taken = [claimed() for _ in range(6)]
    assert taken == [each.pk for each in (urgent, of_ben[0], of_ana[0], of_ben[1], *of_ana[1:])]


def test_use_counts_in_proportion_to_weight(ana, ben):
    Share.objects.create(owner=ana, weight=2)
    of_ana, of_ben = [submitted(ana) for _ in range(4)], [submitted(ben) for _ in range(2)]
    expected = of_ana[0], of_ben[0], of_ana[1], of_ana[2], of_ben[1], of_ana[3]
    assert [claimed() for _ in range(6)] == [each.pk for each in expected]


def test_projects_with_weights_share_what_their_owner_gets(ana):
    Share.objects.create(project="vision", weight=3)
    in_vision = [submitted(ana, "vision") for _ in range(3)]
    other = submitted(ana, "speech")
    assert [claimed() for _ in range(3)] == [in_vision[0].pk, other.pk, in_vision[1].pk]


def test_no_worker_makes_room_for_an_operation_whose_share_is_used_up(ana, ben):
    Share.objects.create(owner=ana, max_slots=3)
    assert submitted(ana) and claimed()
    large = submitted(ana, priority=9)
    large.row.update(processes=4)
    small = submitted(ben)
    offer = replace(rows.OFFER, all_slots=FreeSlot(num_slots=4), free_slots=[FreeSlot(num_slots=3)])
    assert claimed(offer) == small.pk
    Share.objects.update(max_slots=5)
    submitted(ben)
    assert claimed(offer) is None  # kept free for the large one


def test_who_uses_less_does_not_overtake_an_operation_that_slots_are_kept_free_for(ana, ben):
    for _ in range(2):
        assert submitted(ana) and claimed()
    before = submitted(ben)
    large = submitted(ana)
    large.row.update(processes=4)
    after = submitted(ben)
    offer = replace(rows.OFFER, all_slots=FreeSlot(num_slots=4), free_slots=[FreeSlot(num_slots=2)])
    assert [claimed(offer), claimed(offer)] == [before.pk, None]
    assert services.get(after.pk).state == State.PENDING


@pytest.mark.slow
def test_workers_that_claim_at_once_exceed_no_limit(ana, ben, monkeypatch):
    Share.objects.create(owner=ana, max_slots=2)
    Share.objects.create(project="vision", max_slots=3)
    for _ in range(6):
        submitted(ana)
        submitted(ben, "vision")
    start = threading.Barrier(6)
    available = claims.available

    def together(*given):
        with suppress(threading.BrokenBarrierError):
            start.wait(timeout=2)  # each has read what is used before the first one claims
        return available(*given)

    def work(worker_id):
        while rows.claim(worker_id):
            pass
        connection.close()

    monkeypatch.setattr(claims, "available", together)
    workers = [threading.Thread(target=work, args=[f"w{number}"]) for number in range(6)]
    [each.start() for each in workers]
    [each.join() for each in workers]
    running = Operation.objects.filter(state=State.RUNNING)
    assert (running.filter(owner=ana).count(), running.filter(owner=ben).count()) == (2, 3)


def test_the_number_of_queries_does_not_grow_with_owners_and_operations(ana, ben):
    Share.objects.create(owner=ana, max_slots=20)
    submitted(ana)
    with CaptureQueriesContext(connection) as few:
        assert claimed()
    for number in range(10):
        owner = User.objects.create_user(f"user{number}")
        Share.objects.create(owner=owner, max_slots=2, weight=number + 1)
        submitted(owner)
        submitted(ana)
    with CaptureQueriesContext(connection) as many:
        assert claimed()
    assert len(many) == len(few)


def test_a_claim_without_anything_due_reads_no_shares(ana):
    Share.objects.create(owner=ana, max_slots=1)
    with CaptureQueriesContext(connection) as asked:
        assert claimed() is None
    assert len(asked) == 1


def status(operation):
    return queue_status.of_operation(services.get(operation.pk))


def serve(slots):
    registry.register(worker_id="worker-1", kinds=["training"], slots=slots)


def test_the_page_names_the_limit_its_use_and_its_owner(ana):
    serve(slots=8)
    Share.objects.create(owner=ana, max_slots=1)
    assert submitted(ana) and claimed()
    waiting = submitted(ana)
    assert status(waiting).code is BlockingReason.SHARE_USED_UP
    assert status(waiting).message == "Waiting for its share: ana uses 1 of 1 slot."
    assert queue_status.of_all([row_of(waiting)])[waiting.pk] == status(waiting)
    waiting.row.update(processes=2)
    assert status(waiting).code is BlockingReason.SHARE_TOO_SMALL
    expected = "Needs more than its share: ana may use 1 slot at once, and it needs 2."
    assert status(waiting).message == expected
    Share.objects.all().delete()
    assert status(waiting).code is not BlockingReason.SHARE_USED_UP


def row_of(operation):
    return Operation.objects.values(*queue_status.FIELDS).get(pk=operation.pk)


def test_an_operation_that_is_next_by_its_owner_has_nothing_ahead_of_it(ana, ben):
    serve(slots=1)
    assert submitted(ana) and claimed()
    of_ana, of_ben = submitted(ana), submitted(ben)
    assert "next in the queue" in status(of_ben).message
    assert "1 operation is ahead of it" in status(of_ana).message


def test_an_operation_that_went_back_to_the_queue_uses_nothing(ana):
    Share.objects.create(owner=ana, max_slots=1)
    first = submitted(ana)
    assert claimed() == first.pk
    claims.restart_or_fail(
        services.get(first.pk),
        Reason.PROCESS_KILLED,
        actor="w",
        note="",
        outcome=Attempt.Outcome.LOST,
    )
    second = submitted(ana)
    assert claimed() == second.pk
