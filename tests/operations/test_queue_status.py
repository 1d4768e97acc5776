"""The answer to "what does it wait for" and the claim itself never contradict each other."""

from itertools import product

import pytest

from apps.operations.placement import GB, Device, FreeSlot, Offer
from apps.operations.scheduling import queue_status
from apps.operations.scheduling.blocking import BlockingReason
from apps.workers import fleet, registry
from apps.workers.models import Worker
from tests.operations import rows
from tests.thinning import quick_some

pytestmark = [pytest.mark.django_db, pytest.mark.database]

GPU = {"id": "GPU-1", "name": "A100", "memory_bytes": 80 * GB, "driver": "550"}
WISHES = [
    {},
    {"device": "cpu"},
    {"device": "cuda"},
    {"resources": {"gpu_memory_gb": 40}},
    {"resources": {"gpu_memory_gb": 90}},
    {"resources": {"memory_gb": 100}},
    {"queue": "a100"},
]
GPUS = [[], [GPU]]
LABELS = [[], ["a100"]]
FREE_DISK = [GB, 5 * GB]


def register(gpus=(), labels=(), disk=100 * GB, **fields):
    capabilities = {"gpus": list(gpus), "ram_bytes": 64 * GB}
    defaults = {"worker_id": "w", "kinds": ["training"], "labels": labels}
    registry.register(**(defaults | {"capabilities": capabilities} | fields))
    fleet.report_storage(worker_id="w", free_bytes=disk, storage_problem="", dataset_problem="")


def code(operation):
    operation.refresh_from_db()
    return queue_status.of_operation(operation).code


@pytest.mark.parametrize(
    ("wish", "gpus", "labels"), quick_some([*product(WISHES, GPUS, LABELS)], every=5)
)
def test_in_a_moment_means_that_a_claim_takes_it(wish, gpus, labels):
    for disk in FREE_DISK:
        operation = rows.submitted(**wish)
        operation.row.update(checkpoint_bytes=GB)
        register(gpus, labels, disk)
        said = code(operation)
        offer = Offer(
            kinds=["training"],
            labels=labels,
            free_slots=[
                FreeSlot(
                    devices=[Device(gpu["id"], gpu["memory_bytes"]) for gpu in gpus],
                    has_gpus=bool(gpus),
                )
            ],
            memory_bytes=64 * GB,
            disk_bytes=disk,
        )
        taken = rows.claim("w", offer)
        assert (taken is not None) == (said == BlockingReason.SOON), (said, taken)
        operation.delete()


def test_a_gpu_operation_says_that_there_is_no_gpu_and_is_never_claimed_without():
    operation = rows.submitted(device="cuda")
    register()
    assert (rows.claim("w"), code(operation)) == (None, BlockingReason.NO_GPU)


def test_what_holds_the_gpu_is_known_at_once_and_not_at_the_next_heartbeat():
    register([GPU], slots=2)
    operation = rows.submitted(device="cuda")
    assert code(operation) == BlockingReason.SOON
    gpu = Device(GPU["id"], GPU["memory_bytes"])
    other = rows.submitted(device="cuda", priority=1)
    taken = rows.claim(
        "w", Offer(["training"], free_slots=[FreeSlot(has_gpus=True, devices=[gpu])])
    )
    assert taken.pk == other.pk
    assert code(operation) == BlockingReason.WORKERS_BUSY
    assert code(rows.submitted(device="cpu")) == BlockingReason.SOON


def test_what_is_ahead_is_counted_by_priority_then_age():
    register(num_running=1)
    first, second = rows.submitted(), rows.submitted()
    urgent = rows.submitted(priority=1)
    rows.submitted(queue="a100", priority=9)  # stands in another line
    rows.submitted(priority=9).row.update(takes_slot=False)  # waits for a wait slot
    messages = {
        each.pk: queue_status.of_operation(each).message for each in (first, second, urgent)
    }
    assert "next in the queue" in messages[urgent.pk]
    assert "1 operation is ahead of it" in messages[first.pk]
    assert "2 operations are ahead of it" in messages[second.pk]


def test_what_does_not_wait_waits_for_nothing():
    assert queue_status.of_operation(rows.claimed()) is None


@pytest.mark.slow
def test_a_page_of_them_costs_three_queries(django_assert_num_queries):
    register()
    found = [
        {name: getattr(rows.submitted(device="cuda"), name) for name in queue_status.FIELDS}
        for _ in range(5)
    ]
    with django_assert_num_queries(3):
        waits = queue_status.of_all(found)
    assert {wait.code for wait in waits.values()} == {BlockingReason.NO_GPU}
    with django_assert_num_queries(0):
        assert queue_status.of_all([found[0] | {"state": "RUNNING"}]) == {}


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"gpus": None},
        {"gpus": 2},
        {"gpus": ["x", {"memory_bytes": "much"}]},
        {"ram_bytes": "8"},
    ],
)
def test_whatever_a_foreign_worker_says_of_itself_something_is_answered(capabilities):
    register(capabilities=capabilities)
    assert code(rows.submitted(device="cuda")) in BlockingReason


def test_a_worker_that_is_long_gone_counts_for_nothing(settings):
    register()
    Worker.objects.update(heartbeat_at="2020-01-01T00:00:00Z")
    assert code(rows.submitted()) == BlockingReason.NO_WORKER


def test_a_worker_over_http_counts_only_while_it_asks_for_work():
    operation = rows.submitted(device="cuda")
    for name in ("http", "silent"):
        capabilities = {"gpus": [GPU], "ram_bytes": 64 * GB}
        registry.register(
            worker_id=name, worker_type="custom", kinds=["training"], capabilities=capabilities
        )
    assert code(operation) == BlockingReason.NO_WORKER
    register()
    assert code(operation) == BlockingReason.NO_GPU
    registry.asks_for_work(worker_id="http", kinds=["training"], labels=[])
    assert code(operation) != BlockingReason.NO_GPU
    Worker.objects.filter(pk="http").update(asked_at="2020-01-01T00:00:00Z")
    assert code(operation) == BlockingReason.NO_GPU
