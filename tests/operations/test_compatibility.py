"""What a newer version submitted or saved is left to workers that can run it."""

import pytest

from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation
from apps.operations.placement import GB, Offer
from apps.operations.requests import services
from apps.operations.scheduling import claims, compatibility
from apps.workers import registry
from tests.operations import rows
from trainops.runtime.checkpoint import manifest
from trainops.version import VERSION

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def register(name, version):
    registry.register(worker_id=name, kinds=["training"], capabilities={"trainops": version})


def claim():
    offer = Offer(kinds=["training"], memory_bytes=8 * GB, disk_bytes=100 * GB)
    operation = claims.claim(worker_id="mine", host="mine", offer=offer)
    return operation and operation.pk


def with_unknown_field():
    operation = rows.submitted()
    config = {**operation.config, "a_new_field": 1}
    Operation.objects.filter(pk=operation.pk).update(config=config)
    return services.get(operation.pk)


def with_newer_checkpoint():
    operation = rows.submitted()
    Checkpoint.objects.create(
        id="c", operation=operation, attempt=1, type="periodic", step=1, state={},
        artifacts_path=f"{operation.pk}/c", manifest=[], manifest_digest="",
        state_size_bytes=0, artifacts_size_bytes=0, format_version=manifest.VERSION + 1,
    )  # fmt: skip
    return operation


@pytest.mark.parametrize("make", [with_unknown_field, with_newer_checkpoint])
def test_it_is_left_to_a_worker_of_another_version(make):
    register("mine", VERSION)
    register("other", "99.0.0")
    operation, known = make(), rows.submitted()
    assert claim() == known.pk  # what it cannot run holds up nothing behind it
    assert claim() is None
    assert services.get(operation.pk).state == "PENDING"


@pytest.mark.parametrize("make", [with_unknown_field, with_newer_checkpoint])
def test_where_all_workers_are_of_this_version_an_attempt_says_why(make):
    register("mine", VERSION)
    register("foreign", "")  # over HTTP, in another language
    operation = make()
    assert claim() == operation.pk


def test_the_reason_names_both_versions():
    assert "a_new_field" in compatibility.problem(with_unknown_field())
    assert compatibility.problem(with_newer_checkpoint()) == (
        f"it has a checkpoint of format {manifest.VERSION + 1}, and trainops {VERSION} reads "
        f"formats up to {manifest.VERSION}; update this worker"
    )
    assert compatibility.problem(rows.submitted()) == ""
