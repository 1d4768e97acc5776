"""Operations over a registered prefix, in real children."""

import pytest

from apps.datasets.directories import registration
from apps.operations.lifecycle import Reason
from tests.directories import making
from tests.operations.test_directories import again, final, run, submit

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def photos(bucket, tmp_path):
    root = tmp_path / "photos"
    making.image_folders(root)
    bucket.put_all(root, "photos")
    return registration.add_or_find("s3://data/shared/photos")[0]


def test_an_attempt_waits_for_a_bucket_that_does_not_answer(runtime, photos, s3_proxy):
    whole = run(runtime, submit(photos))
    assert whole.state == "COMPLETED", whole.error
    operation = submit(photos)
    s3_proxy.arm("expired", methods=("GET", "HEAD"))
    waiting = run(runtime, operation)
    assert (waiting.state, waiting.reason) == ("RESUMING", Reason.DATASET_AWAY), waiting.error
    s3_proxy.disarm()
    done = again(runtime, waiting)
    assert done.state == "COMPLETED", done.error
    assert final(done) == final(whole)


def test_an_object_that_changed_fails_the_operation_by_its_name(runtime, photos, bucket):
    operation = submit(photos)
    name = photos.preview[0][0]
    bucket.put(f"photos/{name}", b"x" * photos.preview[0][1])
    failed = run(runtime, operation)
    assert (failed.state, failed.reason) == ("FAILED", Reason.INPUT_ERROR)
    assert f"{name} has another content" in failed.error["message"]
