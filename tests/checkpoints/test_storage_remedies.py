"""What the doctor and `up` say of a bucket that cannot be used."""

import errno
import threading
from dataclasses import replace

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
)
from django.contrib.auth.models import User

from apps.checkpoints import place
from apps.checkpoints.storage_remedies import REMEDIES, Defect, cause_of
from apps.checkpoints.trying import RetryPolicy, StorageFailed, retried
from apps.workers.diagnosis import stores
from apps.workers.diagnosis.findings import Level
from tests.checkpoints.conftest import BUCKET
from trainops import checkpoint_storage
from trainops.launch import prepare
from trainops.launch.refusal import CannotStart


def of_bucket(error):
    try:
        retried(lambda: (_ for _ in ()).throw(error), RetryPolicy(tries=1), threading.Event())
    except StorageFailed as failed:
        return cause_of(failed)


def refused(code, status):
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetObject")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (NoCredentialsError(), Defect.CREDENTIALS),
        (refused("InvalidAccessKeyId", 403), Defect.CREDENTIALS),
        (refused("SignatureDoesNotMatch", 403), Defect.CREDENTIALS),
        (refused("RequestTimeTooSkewed", 403), Defect.CREDENTIALS),
        (refused("ExpiredToken", 400), Defect.CREDENTIALS),
        (refused("AccessDenied", 403), Defect.DENIED),
        (refused("NoSuchBucket", 404), Defect.BUCKET_MISSING),
        (refused("SlowDown", 503), Defect.UNREACHABLE),
        (EndpointConnectionError(endpoint_url="http://x"), Defect.UNREACHABLE),
        (ConnectTimeoutError(endpoint_url="http://x"), Defect.UNREACHABLE),
        (OSError(errno.ENOSPC, "full"), Defect.FULL),
        (RuntimeError("a bug"), Defect.UNKNOWN),
    ],
)
def test_a_bucket_that_fails_has_the_cause_of_its_error(error, cause):
    assert of_bucket(error) is cause
    assert cause in REMEDIES and {*REMEDIES} == {*Defect}


@pytest.mark.django_db
class TestABucket:
    """On a real server."""

    def problems(self):
        found = [each for each in stores.storage() if each.level is Level.PROBLEM]
        return " ".join(f"{each.message} {each.remedy}" for each in found)

    def test_that_works_has_none(self, store):
        assert self.problems() == ""

    def test_that_is_missing_is_named_before_the_database_is_touched(self, store, settings):
        place.require()
        settings.CHECKPOINT_BUCKET = replace(settings.CHECKPOINT_BUCKET, name="no-such-bucket")
        assert "Create the bucket" in self.problems()
        User.objects.all().delete()
        with pytest.raises(CannotStart, match=r"s3://no-such-bucket.*Create the bucket"):
            prepare.prepare()
        assert not User.objects.exists()

    def test_whose_server_is_away_is_a_warning_of_a_start(self, store, settings):
        place.require()
        address = f"s3://{BUCKET}?endpoint_url=http://127.0.0.1:1&region_name=us-east-1"
        settings.CHECKPOINT_BUCKET = checkpoint_storage.parse(address)
        assert "reaches the endpoint of the bucket" in self.problems()
        (warning,) = prepare.prepare().warnings
        assert "127.0.0.1:1" in warning

    def test_whose_key_is_not_here_is_named_before_the_database_is_touched(self, store, settings):
        settings.CHECKPOINT_SECRET_KEYS = (b"k" * 32,)
        place.require()
        settings.CHECKPOINT_SECRET_KEYS = ()
        assert "TRAINOPS_CHECKPOINT_KEY_FILE name a file with this key" in self.problems()
        User.objects.all().delete()
        with pytest.raises(CannotStart, match=r"encrypted with the key .*CHECKPOINT_KEY_FILE"):
            prepare.prepare()
        assert not User.objects.exists()
