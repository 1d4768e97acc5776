"""Preemption: running operations of lower priority make room for a waiting one."""

import itertools
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.checkpoints import place, storage
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.lifecycle import Handback, Reason, State
from apps.operations.models import Attempt, MetricPoint, Share
from apps.operations.placement import GB, Device, FreeSlot
from apps.operations.requests import services
from apps.operations.scheduling import (
    claims,
    handbacks,
    preemption,
    queue_status,
    reservations,
    shares,
)
from apps.workers import maintenance, registry
from apps.workers.models import Worker
from apps.workers.runtime import WorkerProcess
from tests.operations import rows
from tests.operations.attempts import Running, run, submit
from tests.waiting import wait_until
from trainops.media.names import SYSTEM
from trainops.runtime.checkpoint.manifest import (
    CheckpointType,
    StagedCheckpoint,
    read_manifest,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
MIN_SECONDS = 600


@pytest.fixture(autouse=True)
def thresholds(settings):
    """Preemption is switched on."""
    on = {"preempt_after_seconds": MIN_SECONDS}
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=on)


def serve(*names, slots=1, gpus=()):
    for name in names:
        registry.register(
            worker_id=name,
            kinds=["training", "loop"],
            slots=slots,
            capabilities={"gpus": [{"id": each, "memory_bytes": 24 * GB} for each in gpus]},
        )
    Worker.objects.update(storage_free_bytes=100 * GB)


def offer(num_free, slots=None, gpus=()):
    devices = [Device(each, 24 * GB) for each in gpus]
    free = [FreeSlot(True, devices, has_gpus=bool(gpus), num_slots=num_free)] if num_free else []
    return replace(
        rows.OFFER,
        kinds=["training", "loop"],
        free_slots=free,
        all_slots=FreeSlot(True, devices, has_gpus=bool(gpus), num_slots=slots or num_free),
        is_node=True,
    )


def waiting(priority=1, *, owner=None, processes=1, **config):
    operation = rows.submitted(owner, priority=priority, **config)
    operation.row.update(processes=processes)
    return operation


def running(worker="a", priority=0, *, processes=1, owner=None, seconds=3600, saved=True, **config):
    """Return an operation that runs for so long, with a checkpoint."""
    operation = waiting(priority, owner=owner, processes=processes, **config)
    operation.row.update(priority=100)  # it is claimed before all others
    assert claims.claim(worker_id=worker, host=worker, offer=offer(processes)).pk == operation.pk
    operation.row.update(priority=priority)
    operation = services.get(operation.pk)
    if saved:
        save(operation)
    begin(operation, seconds)
    return operation


def begin(operation, seconds_ago):
    started_at = timezone.now() - timedelta(seconds=seconds_ago)
    operation.attempts.update(started_at=started_at)


def save(operation, type=CheckpointType.PERIODIC):
    directory = f"a{operation.attempt:04}-s{1:010d}-{type}"
    ReportWriter(operation).commit(StagedCheckpoint(directory, type, 1, "1", (), {}))


def hand_back(operation, reason=Reason.PREEMPTED):
    """Do what the worker does at the end of an attempt that it was asked to hand back."""
    operation = services.get(operation.pk)
    assert claims.restart_or_fail(
        operation, reason, actor="a", note="saved", outcome=Attempt.Outcome.PREEMPTED
    )


def end(operation):
    claims.finish(services.get(operation.pk), State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)


def preempted():
    """Return which running operations make room for which."""
    asked = Attempt.objects.filter(ended_at=None).exclude(handback_reason="")
    return dict(asked.values_list("operation_id", "preempted_for"))


def events(operation):
    return [(each.what, each.note) for each in operation.events.all()]


def test_the_least_important_operation_makes_room_and_both_say_so():
    serve("a", slots=3)
    high, low, _equal = running(priority=1), running(priority=0), running(priority=3)
    first = waiting(priority=3)
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == {low.pk: first.pk}
    note = f"makes room for {first.pk} of priority 3"
    assert events(low)[0] == ("HANDBACK_REQUESTED", note)
    assert events(first)[0] == ("PREEMPTS", f"operations of lower priority: {low.pk} (0)")
    assert handbacks.requested([(low.pk, 1), (high.pk, 1)]) == {
        (low.pk, 1): Handback(Reason.PREEMPTED, note)
    }
    status = queue_status.of_operation(services.get(first.pk))
    assert status.message.endswith(
        "1 operation of lower priority will be saved to make room for it."
    )


def test_without_the_threshold_nothing_is_preempted(settings):
    off = {"preempt_after_seconds": 0}
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=off)
    serve("a")
    running()
    waiting()
    assert preemption.preempt(actor="beat") == 0
    assert type(settings.THRESHOLDS)().preempt_after_seconds == 0


def test_operations_of_equal_or_higher_priority_are_not_preempted():
    serve("a", slots=3)
    running(priority=1), running(priority=1), running(priority=0, seconds=60)
    waiting(priority=1)
    assert preemption.preempt(actor="beat") == 0
    first = waiting(priority=2)  # it alone is above two of them
    assert preemption.preempt(actor="beat") == 1
    assert list(preempted().values()) == [first.pk]


def within_its_minimum(operation):
    begin(operation, MIN_SECONDS - 60)


def in_its_second_attempt(operation):
    hand_back(operation)
    assert claims.claim(worker_id="a", host="a", offer=offer(1)).pk == operation.pk


def without_a_checkpoint_of_this_attempt(operation):
    in_its_second_attempt(operation)
    begin(services.get(operation.pk), MIN_SECONDS + 60)


def stopping(operation):
    operation.row.update(stop_requested="cancel")


def in_its_last_save(operation):
    operation.row.update(step=7, total_steps=7)


def with_its_result(operation):
    save(operation, CheckpointType.FINAL)


def silent(operation):
    rows.forget_lease(operation)


def of_a_protected_owner(operation):
    owner = User.objects.create_user("ana")
    operation.row.update(owner=owner)
    Share.objects.create(owner=owner, preemptible=False)


def of_a_protected_project(operation):
    operation.row.update(project="vision")
    Share.objects.create(project="vision", preemptible=False)


@pytest.mark.parametrize(
    "spared",
    [
        within_its_minimum,
        in_its_second_attempt,
        without_a_checkpoint_of_this_attempt,
        stopping,
        in_its_last_save,
        with_its_result,
        silent,
        of_a_protected_owner,
        of_a_protected_project,
    ],
    ids=lambda each: each.__name__,
)
def test_these_are_not_preempted(spared):
    serve("a", slots=2)
    low, other = running(priority=0), running(priority=1)
    spared(low)
    first = waiting(priority=9)
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == {other.pk: first.pk}


def test_the_share_of_another_owner_protects_nothing():
    Share.objects.create(owner=User.objects.create_user("ana"), preemptible=False)
    Share.objects.create(project="vision", preemptible=False)
    serve("a")
    low, first = running(), waiting()
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == {low.pk: first.pk}


def test_nothing_is_preempted_where_a_worker_is_free():
    serve("a", "b")
    running("a")
    waiting()
    assert preemption.preempt(actor="beat") == 0


def test_nothing_is_preempted_for_what_its_share_or_no_worker_allows():
    serve("a")
    owner = User.objects.create_user("ana")
    Share.objects.create(owner=owner, max_slots=0)
    running()
    waiting(owner=owner)
    waiting(processes=2)
    waiting(device="cuda")
    assert preemption.preempt(actor="beat") == 0


def test_only_operations_on_workers_that_can_take_it_are_preempted():
    serve("a")
    registry.register(worker_id="b", kinds=["training"], labels=["night"], slots=1)
    Worker.objects.update(storage_free_bytes=100 * GB)
    elsewhere, there = running("a", priority=0), running("b", priority=1)
    labelled = waiting(priority=2)
    labelled.row.update(queue="night")
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == {there.pk: labelled.pk}
    assert elsewhere.pk not in preempted()


def test_an_operation_that_needs_a_gpu_preempts_one_that_holds_a_gpu():
    serve("a", slots=4, gpus=["GPU-1"])
    on_cpu = running(priority=0, device="cpu")
    submitted = waiting(priority=1, device="cuda")
    assert claims.claim(worker_id="a", host="a", offer=offer(1, gpus=["GPU-1"])) is not None
    on_gpu = services.get(submitted.pk)
    save(on_gpu)
    begin(on_gpu, 3600)
    first = waiting(priority=2, device="cuda")
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == {on_gpu.pk: first.pk}
    assert on_cpu.pk not in preempted()


def test_the_slots_of_one_worker_are_freed_for_an_operation_of_several_processes():
    serve("a", "b", slots=2)
    on_a = [running("a", priority=0), running("a", priority=2)]
    on_b = [running("b", priority=1), running("b", priority=1)]
    first = waiting(priority=5, processes=2)
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == dict.fromkeys([each.pk for each in on_b], first.pk)
    assert on_a[0].pk not in preempted()


def test_an_operation_of_one_slot_is_preempted_before_one_of_several():
    serve("a", slots=3)
    several, one = running(processes=2), running()
    first = waiting()
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == {one.pk: first.pk}
    assert several.pk not in preempted()


def gang(number, priority=0, processes=1):
    place.require()
    operation = services.submit(
        kind="loop",
        config={"recipe": "digits_loop", "nodes": number, "processes": processes, "device": "cpu"},
        owner=None,
        priority=priority,
    )
    operation.row.update(queued_at=timezone.now() - timedelta(hours=9))
    return operation


def running_gang(number, worker="a", priority=0):
    operation = gang(number, priority)
    claimed = claims.claim(worker_id=worker, host=worker, offer=offer(1))
    assert claimed.pk == operation.pk
    save(claimed)
    begin(claimed, 3600)
    return claimed


def test_an_operation_of_several_nodes_makes_room_on_all_of_them():
    serve("a", "b", "c")
    low = running_gang(2)
    high = running("c", priority=1)
    first = gang(2, priority=5)
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == {low.pk: first.pk}
    assert reservations.freed_for([first]) == {first.pk: {"a", "b"}}
    assert high.pk not in preempted()


def test_operations_on_several_workers_make_room_for_one_of_several_nodes():
    serve("a", "b", "c")
    low, middle, high = (running(name, number) for number, name in enumerate("abc"))
    first = gang(2, priority=5)
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == dict.fromkeys([low.pk, middle.pk], first.pk)
    assert high.pk not in preempted()


def test_it_makes_room_for_a_subtask_and_a_subtask_makes_room():
    serve("a")
    parent = rows.submitted(priority=0)
    parent.row.update(state=State.COMPLETED)
    child = rows.subtask_of(parent, State.PENDING)
    assert claims.claim(worker_id="a", host="a", offer=offer(1)).pk == child.pk
    save(services.get(child.pk))
    begin(child, 3600)
    important = rows.submitted(priority=4)
    important.row.update(state=State.COMPLETED)
    first = rows.subtask_of(important, State.PENDING)
    first.row.update(priority=4)
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == {child.pk: first.pk}


def test_for_each_waiting_operation_another_one_makes_room_once():
    serve("a", slots=3)
    low, middle, high = (running(priority=number) for number in range(3))
    first, second = waiting(priority=2), waiting(priority=2)
    assert preemption.preempt(actor="beat") == 2
    expected = {low.pk: first.pk, middle.pk: second.pk}
    assert preempted() == expected
    third = waiting(priority=2)
    assert [preemption.preempt(actor="beat") for _ in range(3)] == [0, 0, 0]
    assert preempted() == expected
    assert {high.pk, third.pk}.isdisjoint({*expected, *expected.values()})


def test_processes_that_look_at_once_choose_one_set(monkeypatch):
    """Meanwhile other operations have reached their minimum run time: each chooses another one."""
    serve("a", slots=4)
    _low = [running() for _ in range(4)]
    first = waiting()
    together = threading.Barrier(4)
    request, candidates = preemption._request, preemption._candidates
    numbers = itertools.count()
    made = []

    def at_once(*arguments):
        together.wait(timeout=30)  # each has chosen before the first one requests anything
        return request(*arguments)

    def look():
        made.append(preemption.preempt(actor="beat"))
        connection.close()

    monkeypatch.setattr(preemption, "_request", at_once)
    monkeypatch.setattr(preemption, "_candidates", lambda below: [candidates(below)[next(numbers)]])
    threads = [threading.Thread(target=look) for _ in range(4)]
    [each.start() for each in threads]
    [each.join() for each in threads]
    assert sorted(made) == [0, 0, 0, 1]
    assert list(preempted().values()) == [first.pk]


def test_one_that_ends_meanwhile_preempts_nothing_in_its_place(monkeypatch):
    serve("a", slots=2)
    other, ending = sorted([running(), running()], key=lambda each: each.pk)
    first = waiting(processes=2)
    request = preemption._request

    def ended_meanwhile(*arguments):
        end(ending)
        return request(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(preemption, "_request", ended_meanwhile)
        assert preemption.preempt(actor="beat") == 0
    assert preempted() == {}
    assert services.get(other.pk).state == State.RUNNING
    assert "PREEMPTS" not in dict(events(first))
    assert preemption.preempt(actor="beat") == 1  # one slot is free; the other one is needed
    assert preempted() == {other.pk: first.pk}


def test_a_request_whose_operation_waits_no_longer_is_withdrawn():
    serve("a")
    low, first = running(), waiting()
    assert preemption.preempt(actor="beat") == 1
    services.cancel(operation_id=first.pk, actor=None)
    assert handbacks.requested([(low.pk, 1)]) == {}
    assert preemption.preempt(actor="beat") == 0
    assert preempted() == {}


def test_a_claim_that_came_meanwhile_needs_no_room(monkeypatch):
    serve("a")
    running()
    first = waiting()
    request = preemption._request

    def claimed_meanwhile(*arguments):
        assert claims.claim(worker_id="b", host="b", offer=offer(1)).pk == first.pk
        return request(*arguments)

    monkeypatch.setattr(preemption, "_request", claimed_meanwhile)
    assert preemption.preempt(actor="beat") == 0
    assert preempted() == {}


def test_the_preempted_operation_does_not_start_before_the_one_that_it_made_room_for():
    serve("a", slots=2)
    low = [running(), running()]
    first = waiting(processes=2)
    assert preemption.preempt(actor="beat") == 1
    hand_back(low[0])
    assert claims.claim(worker_id="a", host="a", offer=offer(1, 2)) is None
    hand_back(low[1])
    assert claims.claim(worker_id="a", host="a", offer=offer(2)).pk == first.pk
    end(first)
    resumed = {claims.claim(worker_id="a", host="a", offer=offer(2 - n, 2)).pk for n in range(2)}
    assert resumed == {each.pk for each in low}


def test_freed_slots_are_kept_on_the_worker_where_they_are_freed():
    """Another worker has as few slots to free, and its name comes first."""
    serve("a", "b", slots=4)
    fixed = [running("a", priority=9, processes=2), running("a", priority=9)]
    low = [running("b", processes=2), running("b", processes=2)]
    first = waiting(priority=5, processes=4)
    assert preemption.preempt(actor="beat") == 1
    assert set(preempted()) == {each.pk for each in low}
    hand_back(low[0])
    end(fixed[1])
    assert claims.claim(worker_id="b", host="b", offer=offer(2, 4)) is None
    assert claims.claim(worker_id="a", host="a", offer=offer(2, 4)).pk == low[0].pk
    assert services.get(first.pk).state == State.PENDING


def test_an_operation_has_room_made_for_it_once_in_the_minimum_run_time():
    serve("a")
    low, first = running(), waiting()
    assert preemption.preempt(actor="beat") == 1
    hand_back(low)
    running(priority=2)  # submitted meanwhile, it took the slot
    another = waiting(priority=4)
    assert preemption.preempt(actor="beat") == 1
    assert set(preempted().values()) == {another.pk}
    Attempt.objects.exclude(ended_at=None).update(
        ended_at=timezone.now() - timedelta(seconds=MIN_SECONDS + 1)
    )
    serve("b")
    second = running("b", priority=0)
    assert preemption.preempt(actor="beat") == 1
    assert preempted()[second.pk] == first.pk


def test_a_preempted_operation_is_neither_failed_nor_penalized():
    operation = running(restart={"policy": "never", "max_restarts": 0})
    operation.row.update(restarts_used=2)
    hand_back(operation)
    after = services.get(operation.pk)
    assert (after.state, after.reason, after.error) == (State.RESUMING, Reason.PREEMPTED, None)
    assert (after.restarts_used, after.not_before, after.concerns) == (2, None, "")


def test_a_cancel_that_follows_ends_it():
    serve("a")
    low = running()
    waiting()
    assert preemption.preempt(actor="beat") == 1
    services.cancel(operation_id=low.pk, actor=None)
    hand_back(low)
    after = services.get(low.pk)
    assert (after.state, after.reason) == (State.CANCELLED, Reason.CANCELLED_BY_PERSON)


def test_every_sweep_looks_for_operations_to_preempt():
    serve("a")
    low, first = running(), waiting()
    maintenance.sweep(actor="beat")
    assert preempted() == {low.pk: first.pk}


def test_a_share_that_allows_one_more_slot_preempts_one_operation():
    serve("a", slots=4)
    ana, ben = (User.objects.create_user(name) for name in ("ana", "ben"))
    [running(owner=ben) for _ in range(4)]
    Share.objects.create(owner=ana, max_slots=1)
    first, *_ = [waiting(owner=ana) for _ in range(4)]
    assert [preemption.preempt(actor="beat") for _ in range(2)] == [1, 0]
    assert list(preempted().values()) == [first.pk]


def test_a_share_of_a_project_that_allows_one_more_gpu_preempts_one_operation():
    gpus = ["GPU-1", "GPU-2"]
    serve("a", slots=2, gpus=gpus)
    for free in (gpus, gpus[1:]):
        submitted = waiting(priority=0, device="cuda")
        assert claims.claim(worker_id="a", host="a", offer=offer(2, gpus=free)) is not None
        save(services.get(submitted.pk))
        begin(submitted, 3600)
    Share.objects.create(project="vision", max_gpus=1)
    for _ in range(2):
        waiting(device="cuda").row.update(project="vision")
    assert [preemption.preempt(actor="beat") for _ in range(2)] == [1, 0]


def test_all_slots_that_a_request_frees_count_for_the_next_operations():
    serve(*"abcd", slots=4)
    [running(name, processes=4) for name in "abcd"]
    first, *others = [waiting() for _ in range(4)]
    assert [preemption.preempt(actor="beat") for _ in range(2)] == [1, 0]
    assert list(preempted().values()) == [first.pk]
    waiting()
    assert preemption.preempt(actor="beat") == 1
    assert {each.pk for each in others}.isdisjoint(preempted().values())


def over_http(*names):
    serve(*names)
    Worker.objects.filter(pk__in=names).update(worker_type="remote", asked_at=timezone.now())


def waiting_subtask(priority):
    parent = rows.submitted()
    parent.row.update(state=State.COMPLETED)
    child = rows.subtask_of(parent, State.PENDING)
    child.row.update(priority=priority)
    return child


def test_a_subtask_preempts_nothing_on_a_worker_over_http():
    serve("z")
    over_http("a", "b")
    there, here = running("a"), running("z", priority=1)
    child = waiting_subtask(4)  # the worker b is free, and takes no subtasks
    assert preemption.preempt(actor="beat") == 1
    assert preempted() == {here.pk: child.pk}
    assert there.pk not in preempted()


def test_nothing_is_preempted_on_a_worker_that_is_reserved_for_a_sooner_operation():
    serve("a", slots=2)
    running(priority=9), running(priority=0)
    waiting(priority=5, processes=2)
    waiting(priority=4)
    assert preemption.preempt(actor="beat") == 0


def test_operations_whose_share_is_used_up_leave_others_their_turn(monkeypatch):
    monkeypatch.setattr(preemption, "MAX_LOOKED_AT", 2)
    serve("a", slots=3)
    ana = User.objects.create_user("ana")
    Share.objects.create(owner=ana, max_slots=0)
    [running() for _ in range(3)]
    [waiting(priority=9, owner=ana) for _ in range(2)]
    others = [waiting() for _ in range(3)]
    assert [preemption.preempt(actor="beat") for _ in range(3)] == [2, 1, 0]
    assert set(preempted().values()) == {each.pk for each in others}


def test_an_operation_for_which_no_worker_keeps_slots_preempts_nothing(monkeypatch):
    monkeypatch.setattr(reservations, "MAX_LOOKED_AT", 1)
    serve("a", "b", slots=2)
    [running(name, processes=2) for name in "ab"]
    first, _second = waiting(processes=2), waiting(processes=2)
    assert [preemption.preempt(actor="beat") for _ in range(2)] == [1, 0]
    assert list(preempted().values()) == [first.pk]


def test_slots_that_were_freed_for_an_earlier_wait_are_kept_no_longer():
    serve("a", "b")
    low, older, first = running("a"), waiting(priority=0), waiting()
    running("b", priority=9)
    assert preemption.preempt(actor="beat") == 1
    hand_back(low)
    assert reservations.freed_for([services.get(first.pk)]) == {first.pk: {"a"}}
    assert claims.claim(worker_id="a", host="a", offer=offer(1)).pk == first.pk
    hand_back(first, Reason.SHUTDOWN)
    assert reservations.freed_for([older, services.get(first.pk)]) == {}


def test_what_no_hand_back_makes_room_for_is_examined_once(monkeypatch):
    """Equal operations are one group."""
    serve("a", "b")
    running("a"), running("b", priority=3)
    asked = []
    reason = preemption._reason
    monkeypatch.setattr(preemption, "_reason", lambda *given: asked.append(given) or reason(*given))
    Worker.objects.filter(pk="a").update(labels=[])
    Worker.objects.filter(pk="b").update(labels=["night"])
    for _ in range(20):
        waiting(priority=2).row.update(queue="night")
    assert preemption.preempt(actor="beat") == 0
    assert len(asked) == 2  # as it is, and with all hand-backs


def num_queries_of_a_poll():
    with CaptureQueriesContext(connection) as asked:
        assert reservations.available("b", offer(1, 4), shares.current()).exists()
    return len(asked)


def test_a_poll_reads_at_once_for_which_operations_slots_are_freed():
    serve("a", "b", slots=4)
    running("a", processes=4), running("b", priority=9, processes=4)
    waiting(processes=4)
    assert preemption.preempt(actor="beat") == 1
    waiting(priority=0)
    few = num_queries_of_a_poll()
    [waiting(processes=4) for _ in range(5)]
    assert num_queries_of_a_poll() == few


# Real children of a real forkserver.


def result_of(operation):
    (final,) = storage.operation_directory(operation.pk).glob("*-final")
    points = MetricPoint.objects.filter(operation_id=operation.pk, retired_by=None)
    curve = points.exclude(name__startswith=SYSTEM).values_list("name", "step", "value")
    return {each.name: each.blake3 for each in read_manifest(final).artifacts}, sorted(curve)


def scripted(priority=0, **given):
    operation = submit(
        epochs=30, step_seconds=0.02, checkpoint={"every_steps": 10}, seed=7, **given
    )
    operation.row.update(priority=priority)
    return operation


@pytest.fixture
def worker(runtime):
    serve(runtime.worker_id)
    return WorkerProcess(runtime)


def at_its_first_checkpoint(runtime, operation):
    attempt = Running(runtime, operation)
    wait_until(lambda: operation.checkpoints.exists())
    begin(operation, 3600)
    return attempt


@pytest.mark.slow
def test_a_preempted_operation_resumes_later_to_the_same_result(runtime, worker):
    undisturbed = run(runtime, scripted())
    assert undisturbed.state == State.COMPLETED, undisturbed.error
    low = scripted()
    attempt = at_its_first_checkpoint(runtime, low)
    first = submit(epochs=1)
    first.row.update(priority=1)
    assert preemption.preempt(actor="beat") == 1
    worker._read_stop_requests()
    handed_back = attempt.ended()
    assert (handed_back.state, handed_back.reason) == (State.RESUMING, Reason.PREEMPTED)
    ended = handed_back.attempts.get()
    assert (ended.outcome, ended.preempted_for) == (Attempt.Outcome.PREEMPTED, first.pk)
    newest = handed_back.checkpoints.newest_first().first()
    assert (newest.type, newest.step) == (CheckpointType.SHUTDOWN, handed_back.step)
    assert ended.note == f"makes room for {first.pk} of priority 1; saved: {newest}"
    assert 10 <= handed_back.step < undisturbed.step
    assert run(runtime, first).state == State.COMPLETED
    assert services.get(low.pk).state == State.RESUMING
    resumed = run(runtime, low)
    assert (resumed.state, resumed.restarts_used) == (State.COMPLETED, 0)
    assert resumed.attempts.first().receipt["exact"]
    assert result_of(resumed) == result_of(undisturbed)


@pytest.mark.slow
def test_an_operation_that_completes_before_its_hand_back_is_complete(runtime):
    serve(runtime.worker_id)
    low = scripted()
    attempt = at_its_first_checkpoint(runtime, low)
    first = submit(epochs=1)
    first.row.update(priority=1)
    assert preemption.preempt(actor="beat") == 1
    assert attempt.ended().state == State.COMPLETED
    assert handbacks.requested([(low.pk, 1)]) == {}
    assert run(runtime, first).state == State.COMPLETED
