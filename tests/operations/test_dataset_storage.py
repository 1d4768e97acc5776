"""A worker that cannot read the dataset storage takes only operations without datasets."""

from io import BytesIO
from pathlib import Path

import pytest

from apps.datasets import services as datasets
from apps.datasets import storage
from apps.operations.attempts import work
from apps.operations.requests import services
from apps.operations.scheduling import queue_status
from apps.operations.scheduling.blocking import BlockingReason
from apps.operations.scheduling.slots import Slots
from apps.workers import fleet, registry
from apps.workers.models import Worker
from tests.operations.rows import claim, submitted

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def of_table():
    """Submit an operation that reads a table."""
    table = datasets.add_table(BytesIO(b"a,b\n" + b"1,2\n2,3\n" * 20), filename="t.csv")
    return submitted(recipe="tabular", parameters={"dataset": table.pk, "target": "b"})


@pytest.fixture
def worker(db):
    runtime = work.WorkerRuntime()
    runtime.worker_id, runtime.slots = "worker-1", Slots(count=1)
    registry.register(worker_id=runtime.worker_id, kinds=["training"], slots=1)
    runtime.memory_bytes = 8 * 10**9

    def look():
        runtime.look_at_storage()
        runtime.dataset_look.look()
        fleet.report_storage(
            worker_id=runtime.worker_id,
            free_bytes=runtime.disk_bytes,
            storage_problem=runtime.storage_problem,
            dataset_problem=runtime.dataset_look.problem,
        )
        return runtime.offer()

    return look


def test_an_operation_waits_for_its_dataset_and_others_do_not(worker):
    reads = of_table()
    assert reads.need.uses_datasets
    offer = worker()
    assert offer.has_datasets
    root = Path(storage.PLACE.location)
    root.rename(root.with_name("share"))
    root.mkdir()  # an unmounted share: the mount point is empty

    offer = worker()
    assert claim(offer=offer) is None
    status = queue_status.of_operation(services.get(reads.pk))
    assert status.code == BlockingReason.DATASETS_AWAY
    assert "The dataset storage is unavailable" in status.message
    assert "identity file" in status.message and not any(root.iterdir())
    assert registry.get("worker-1").status == "AVAILABLE"
    plain = submitted()
    assert queue_status.of_operation(services.get(plain.pk)).code == BlockingReason.SOON
    assert claim(offer=offer).pk == plain.pk

    root.rmdir()
    root.with_name("share").rename(root)
    offer = worker()
    assert registry.get("worker-1").dataset_problem == ""
    assert claim(offer=offer).pk == reads.pk


def test_a_dataset_storage_whose_library_fails_is_unavailable(worker, monkeypatch):
    class Refused(Exception):
        pass

    class Bucket:
        def path(self, name):
            raise NotImplementedError

        def open(self, name):
            raise Refused("no\ncredentials")

    of_table()
    monkeypatch.setattr(storage, "_storage", Bucket)
    assert worker().has_datasets is False
    assert registry.get("worker-1").dataset_problem == "Refused: no credentials"


def test_a_worker_without_the_checkpoint_storage_is_not_available(worker, settings):
    worker()
    root = settings.CHECKPOINT_ROOT
    root.rename(root.with_name("share"))
    root.mkdir()
    offer = worker()
    assert offer.free_slots == ()
    assert registry.get("worker-1").status == "STORAGE_AWAY"
    Worker.objects.update(num_running=1)  # what runs continues
    assert registry.get("worker-1").status == "BUSY"
