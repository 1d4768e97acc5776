"""The answer to "what does it wait for" and the claim itself never contradict each other."""

from itertools import product

import pytest

from apps.operations.placement import GB, Device, Offer, Room
from apps.operations.scheduling import outlook
from apps.operations.scheduling.waiting import Wait
from apps.workers import fleet, registry
from apps.workers.models import Worker
from tests.operations import rows

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
    fleet.report_storage(worker_id="w", free_bytes=disk, problem="")


def code(operation):
    operation.refresh_from_db()
    return outlook.of_operation(operation).code


@pytest.mark.parametrize(("wish", "gpus", "labels"), list(product(WISHES, GPUS, LABELS)))
def test_in_a_moment_means_that_a_claim_takes_it(wish, gpus, labels):
    for disk in FREE_DISK:
        operation = rows.submitted(**wish)
        operation.row.update(checkpoint_bytes=GB)
        register(gpus, labels, disk)
        said = code(operation)
        offer = Offer(
            kinds=["training"],
            labels=labels,
            rooms=[
                Room(
                    devices=[Device(gpu["id"], gpu["memory_bytes"]) for gpu in gpus],
                    has_gpus=bool(gpus),
                )
            ],
            memory_bytes=64 * GB,
            disk_bytes=disk,
        )
        taken = rows.claim("w", offer)
        assert (taken is not None) == (said == Wait.SOON), (said, taken)
        operation.delete()


def test_a_gpu_operation_says_that_there_is_no_gpu_and_is_never_claimed_without():
    operation = rows.submitted(device="cuda")
    register()
    assert (rows.claim("w"), code(operation)) == (None, Wait.NO_GPU)


def test_what_holds_the_gpu_is_known_at_once_and_not_at_the_next_heartbeat():
    register([GPU], slots=2)
    operation = rows.submitted(device="cuda")
    assert code(operation) == Wait.SOON
    gpu = Device(GPU["id"], GPU["memory_bytes"])
    other = rows.submitted(device="cuda", priority=1)
    taken = rows.claim("w", Offer(["training"], rooms=[Room(has_gpus=True, devices=[gpu])]))
    assert taken.pk == other.pk
    assert code(operation) == Wait.WORKERS_BUSY
    assert code(rows.submitted(device="cpu")) == Wait.SOON


def test_what_is_ahead_is_counted_by_priority_then_age():
    register(num_running=1)
    first, second = rows.submitted(), rows.submitted()
    urgent = rows.submitted(priority=1)
    rows.submitted(queue="a100", priority=9)  # stands in another line
    rows.submitted(priority=9).row.update(takes_slot=False)  # waits for a seat
    told = {each.pk: outlook.of_operation(each).message for each in (first, second, urgent)}
    assert "it is the next" in told[urgent.pk]
    assert "one stands before it" in told[first.pk]
    assert "2 stand before it" in told[second.pk]


def test_what_does_not_wait_waits_for_nothing():
    assert outlook.of_operation(rows.claimed()) is None


def test_a_page_of_them_costs_two_queries(django_assert_num_queries):
    register()
    found = [
        {name: getattr(rows.submitted(device="cuda"), name) for name in outlook.FIELDS}
        for _ in range(5)
    ]
    with django_assert_num_queries(2):
        waits = outlook.of_all(found)
    assert {wait.code for wait in waits.values()} == {Wait.NO_GPU}
    with django_assert_num_queries(0):
        assert outlook.of_all([found[0] | {"state": "RUNNING"}]) == {}


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
    assert code(rows.submitted(device="cuda")) in Wait


def test_a_worker_that_is_long_gone_counts_for_nothing(settings):
    register()
    Worker.objects.update(heartbeat_at="2020-01-01T00:00:00Z")
    assert code(rows.submitted()) == Wait.NO_WORKER


def test_a_worker_over_http_counts_only_while_it_asks_for_work():
    operation = rows.submitted(device="cuda")
    for name in ("http", "silent"):
        capabilities = {"gpus": [GPU], "ram_bytes": 64 * GB}
        registry.register(
            worker_id=name, worker_type="custom", kinds=["training"], capabilities=capabilities
        )
    assert code(operation) == Wait.NO_WORKER
    register()
    assert code(operation) == Wait.NO_GPU
    registry.asks_for_work(worker_id="http", kinds=["training"], labels=[])
    assert code(operation) != Wait.NO_GPU
    Worker.objects.filter(pk="http").update(asked_at="2020-01-01T00:00:00Z")
    assert code(operation) == Wait.NO_GPU
