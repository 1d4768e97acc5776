import threading
from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.operations.placement import GB, Device, FreeSlot
from apps.operations.requests import services
from apps.operations.scheduling import claims
from tests.operations import rows

SMALL_GPU, LARGE_GPU = Device("GPU-small", 24 * GB), Device("GPU-large", 80 * GB)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


def test_a_claim_makes_a_new_attempt_with_a_lease():
    operation = rows.claimed()
    assert (operation.state, operation.attempt, operation.worker_id) == ("RUNNING", 1, "worker-1")
    assert operation.lease_expires_at is not None
    assert Attempt.objects.get(operation=operation).number == 1


def test_nothing_to_claim_is_a_normal_answer_that_holds_up_no_writer():
    with CaptureQueriesContext(connection) as asked:
        assert rows.claim() is None
    assert [query["sql"][:6] for query in asked] == ["SELECT"]  # and no BEGIN


@pytest.mark.slow
def test_many_workers_never_claim_the_same_operation_twice():
    for _ in range(12):
        rows.submitted()
    taken: list[str] = []

    def work(worker_id):
        while operation := rows.claim(worker_id):
            taken.append(operation.pk)
        connection.close()

    workers = [threading.Thread(target=work, args=[f"worker-{n}"]) for n in range(6)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]

    assert sorted(taken) == sorted(Operation.objects.values_list("pk", flat=True))
    assert Attempt.objects.count() == 12


def test_the_highest_priority_goes_first_then_the_longest_waiting():
    first, second = rows.submitted(), rows.submitted()
    urgent = services.submit(kind="training", config=rows.CONFIG, owner=None, priority=5)
    assert [rows.claim().pk for _ in range(3)] == [urgent.pk, first.pk, second.pk]


def offer(*devices, **fields):
    return replace(
        rows.OFFER, free_slots=[FreeSlot(has_gpus=bool(devices), devices=devices)], **fields
    )


def claim(given):
    """Return the id of what is claimed for an offer, or None."""
    operation = rows.claim(offer=given)
    return operation and operation.pk


def test_an_operation_that_needs_a_gpu_waits_for_a_worker_that_has_one():
    operation = rows.submitted(device="cuda")
    assert claim(offer()) is None
    assert claim(offer(SMALL_GPU)) == operation.pk


def test_it_gets_the_smallest_gpu_that_suffices_and_the_attempt_says_which():
    rows.submitted()
    rows.submitted(resources={"gpu_memory_gb": 40})
    assert claim(offer(SMALL_GPU)) is not None
    assert claim(offer(SMALL_GPU)) is None
    assert claim(offer(LARGE_GPU, SMALL_GPU)) is not None
    taken = Attempt.objects.order_by("id").values_list("device", flat=True)
    assert list(taken) == ["GPU-small", "GPU-large"]


def test_beside_a_busy_gpu_only_what_wants_none_is_started():
    rows.submitted()
    for_the_cpu = rows.submitted(device="cpu")
    all_busy = replace(rows.OFFER, free_slots=[FreeSlot(has_gpus=True)])
    assert (claim(all_busy), claim(all_busy)) == (for_the_cpu.pk, None)
    assert Attempt.objects.get().device == ""


def test_an_operation_waits_for_a_machine_with_enough_memory():
    operation = rows.submitted(resources={"memory_gb": 64})
    assert claim(offer(memory_bytes=64 * GB - 1)) is None
    assert claim(offer(memory_bytes=64 * GB)) == operation.pk


def test_what_does_not_fit_on_the_disk_delays_no_operation_behind_it():
    large = rows.submitted(priority=9)
    large.row.update(checkpoint_bytes=3 * GB)
    behind = rows.submitted()
    short = offer(disk_bytes=6 * GB - 1)
    assert (claim(short), claim(short)) == (behind.pk, None)
    assert claim(offer(disk_bytes=6 * GB)) == large.pk


def test_a_worker_takes_its_kinds_and_labels_and_what_asks_for_no_label():
    plain, labelled = rows.submitted(), rows.submitted(queue="a100", priority=1)
    assert claim(offer(kinds=["rl"], labels=["a100"])) is None
    assert claim(offer(labels=["t4"])) == plain.pk
    assert claim(offer(labels=["t4"])) is None
    assert claim(offer(labels=["t4", "a100"])) == labelled.pk


def test_priority_goes_before_age_across_kinds_labels_and_devices():
    oldest = rows.submitted()
    for_a_gpu = rows.submitted(device="cuda")
    urgent = rows.submitted(priority=5)
    urgent.row.update(kind="rl")
    labelled = rows.submitted(priority=2, queue="a100")
    all_of_it = offer(LARGE_GPU, kinds=["training", "rl"], labels=["a100"])
    taken = [claim(all_of_it) for _ in range(5)]
    assert taken == [urgent.pk, labelled.pk, oldest.pk, for_a_gpu.pk, None]


@pytest.mark.slow
def test_workers_that_race_take_only_what_fits_each():
    offers = {
        "cpu": offer(),
        "gpu": offer(LARGE_GPU),
        "labelled": offer(SMALL_GPU, labels=["a100"]),
    }
    for _ in range(4):
        rows.submitted(queue="a100")
        rows.submitted(resources={"gpu_memory_gb": 40})
        rows.submitted(device="cuda")
        rows.submitted(device="cpu")
    taken: list[tuple[str, Operation]] = []

    def work(worker_id):
        while operation := rows.claim(worker_id, offers[worker_id]):
            taken.append((worker_id, operation))
        connection.close()

    workers = [threading.Thread(target=work, args=[name]) for name in offers for _ in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]

    assert len(taken) == 16 == len({operation.pk for _, operation in taken})
    for worker_id, operation in taken:
        given = offers[worker_id]
        assert operation.queue in ("", *given.labels)
        assert given.allows(operation.need)


@pytest.mark.slow
def test_a_claim_looks_at_what_waits_and_not_at_what_ever_was():
    with CaptureQueriesContext(connection) as one:
        assert rows.claimed()
    for _ in range(3):
        rows.submitted()
    with CaptureQueriesContext(connection) as many:
        assert rows.claim()
    assert len(many) <= len(one)  # the first one's includes the submission
    finished = Operation.objects.values().first() | {"state": State.COMPLETED}
    Operation.objects.bulk_create(
        Operation(**finished | {"id": f"op_training_{number}"}) for number in range(2000)
    )
    if connection.vendor == "postgresql":  # its plan depends on what it knows of the rows
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE operations_operation")
    plan = Operation.objects.due().fitting(rows.OFFER).next_first().explain()
    indexes = [
        "operation_next",
        "operation_state",
    ]  # both know the state: finished rows are not read
    assert any(f"{index} " in plan for index in indexes), plan


def test_a_restarted_operation_is_left_alone_until_its_pause_is_over():
    operation = rows.claimed()
    claims.restart_or_fail(
        operation, Reason.PROCESS_KILLED, actor="w", note="", outcome=Attempt.Outcome.LOST
    )
    assert services.get(operation.pk).state == State.RESUMING
    assert rows.claim() is None


def test_renewing_tells_which_attempts_are_still_owned():
    operation = rows.claimed()
    key, ghost = (operation.pk, 1), (operation.pk, 0)
    assert claims.renew("worker-1", [key, ghost]) == {key}
    assert claims.renew("worker-2", [key]) == set()


def test_a_ghost_cannot_end_what_another_attempt_owns():
    ghost = rows.claimed()
    operation = services.get(ghost.pk)
    operation.row.move(State.RESUMING, actor="sweep")
    current = rows.claim("worker-2")

    with pytest.raises(claims.Fenced):
        claims.finish(ghost, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED, result={})

    operation.refresh_from_db()
    assert (operation.state, operation.attempt, operation.result) == (
        "RUNNING",
        current.attempt,
        None,
    )
    assert not Attempt.objects.filter(outcome=Attempt.Outcome.COMPLETED).exists()


def test_a_ghost_cannot_put_it_back_into_the_queue():
    ghost = rows.claimed()
    services.get(ghost.pk).row.move(State.RESUMING, actor="sweep")
    rows.claim("worker-2")
    assert not claims.restart_or_fail(
        ghost, Reason.SHUTDOWN, actor="w", note="", outcome=Attempt.Outcome.PREEMPTED
    )


def test_what_was_asked_to_stop_is_not_started_again(person):
    operation = rows.claimed(person)
    services.cancel(operation_id=operation.pk, actor=person)
    claims.restart_or_fail(
        operation, Reason.WORKER_LOST, actor="sweep", note="lost", outcome=Attempt.Outcome.LOST
    )
    assert services.get(operation.pk).state == State.CANCELLED
