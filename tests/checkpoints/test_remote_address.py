"""What TRAINOPS_CHECKPOINT_STORAGE may say, what it may not, and what is worth another try."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from apps.checkpoints.trying import RetryPolicy, StorageFailed, retried
from trainops.checkpoint_storage import (
    KEY_VARIABLE,
    VARIABLE,
    Bucket,
    parse,
    read,
    read_secret_keys,
)

ROOT = Path(__file__).resolve().parents[2]
QUICK = RetryPolicy(tries=3, first_seconds=0.001)


def test_a_path_is_a_directory_as_ever():
    assert read({VARIABLE: "/mnt/shared/checkpoints"}) == Path("/mnt/shared/checkpoints")
    assert read({VARIABLE: ""}) is None
    assert read({}) is None


def test_a_bucket_and_what_leads_there():
    given = "s3://kept/of/tests/?region_name=eu-central-1&endpoint_url=https://s3.example:9000"
    bucket = read({VARIABLE: given})
    assert isinstance(bucket, Bucket)
    assert str(bucket) == "s3://kept/of/tests"
    options = bucket.backend({})["OPTIONS"]
    assert options["bucket_name"] == "kept"
    assert options["location"] == "of/tests"
    assert options["endpoint_url"] == "https://s3.example:9000"
    assert options["region_name"] == "eu-central-1"


def test_azures_credentials_come_from_the_environment():
    bucket = Bucket("azure", "kept", "", (("account_name", "ours"),))
    options = bucket.backend({"AZURE_STORAGE_KEY": "secret"})["OPTIONS"]
    assert (options["account_key"], options["account_name"]) == ("secret", "ours")
    assert "sas_token" not in options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("s4://kept", "s4:// is not known"),
        ("s3:kept", "not a bucket name"),
        ("s3://", "not a bucket name"),
        ("s3://kept/a/../b", "not a prefix"),
        ("s3://kept/a//b", "not a prefix"),
        ("s3://kept#part", "#part is not allowed"),
        ("s3://kept?region=eu", "'region' is not an option of s3:// \\(endpoint_url, region_name"),
        ("s3://kept?region_name=", "region_name is empty"),
        ("s3://kept?region_name=a&region_name=b", "given twice"),
        ("s3://kept?endpoint_url=minio:9000", "must be http:// or https://"),
        ("azure://kept", "account_name is missing"),
        ("s3://[kept", "is not a URL"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_what_is_allowed(given, message):
    with pytest.raises(ValueError, match=message) as refusal:
        read({VARIABLE: given})
    assert VARIABLE in str(refusal.value)
    assert "s3://BUCKET/PREFIX" in str(refusal.value)


@pytest.mark.parametrize(
    "given",
    [
        "s3://ana:hunter2@kept/x",
        "s3://kept?endpoint_url=https://ana:hunter2@s3.example",
        "s3://kept?endpoint_url=https%3A%2F%2Fana%3Ahunter2%40s3.example",
    ],
)
def test_credentials_in_it_are_refused_and_not_repeated(given):
    with pytest.raises(ValueError, match="credentials come from the environment") as refusal:
        parse(given)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "extra"), [("gs://kept", "gcs"), ("azure://kept?account_name=ours", "azure")]
)
def test_a_library_that_is_missing_is_named_with_its_extra(given, extra, monkeypatch):
    monkeypatch.setattr("trainops.checkpoint_storage.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=f"install the extra '{extra}'"):
        parse(given)


@pytest.mark.slow
def test_keys_are_the_lines_of_a_file(tmp_path):
    bucket, file = Bucket("s3", "kept"), tmp_path / "keys"
    file.write_text(f"{'ab' * 32}\n\n{'cd' * 32}\n")
    keys = read_secret_keys(bucket, {KEY_VARIABLE: str(file)})
    assert keys == (b"\xab" * 32, b"\xcd" * 32)
    assert read_secret_keys(bucket, {KEY_VARIABLE: ""}) == read_secret_keys(None, {}) == ()


@pytest.mark.parametrize(
    "content", ["", "ab" * 31, "ab" * 33, "a passphrase", f"{'ab' * 32}\n{'cd' * 16}"]
)
def test_what_is_no_key_is_refused_and_not_repeated(content, tmp_path):
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(ValueError, match=f"{KEY_VARIABLE}: {file} is not a key") as refusal:
        read_secret_keys(Bucket("s3", "kept"), {KEY_VARIABLE: str(file)})
    assert not content or content not in str(refusal.value)


@pytest.mark.parametrize(
    ("storage", "problem"),
    [(Bucket("s3", "kept"), "cannot be read: No such file"), (Path("/mnt"), "names none"),
     (None, "names none")],
)  # fmt: skip
def test_a_key_that_would_encrypt_nothing_is_refused(storage, problem, tmp_path):
    with pytest.raises(ValueError, match=problem):
        read_secret_keys(storage, {KEY_VARIABLE: str(tmp_path / "absent")})


def test_nothing_starts_with_an_address_that_is_wrong():
    environment = os.environ | {VARIABLE: "s3://kept?region=eu"}
    command = [sys.executable, "manage.py", "check"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "'region' is not an option of s3://" in done.stderr


def client_error(status, code):
    response = {"Error": {"Code": code, "Message": "refused"}}
    return ClientError(response | {"ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


@pytest.mark.parametrize(
    ("error", "num_tries"),
    [
        (client_error(500, "InternalError"), 3),
        (client_error(503, "SlowDown"), 3),
        (client_error(429, "TooManyRequests"), 3),
        (EndpointConnectionError(endpoint_url="http://nowhere"), 3),
        (ConnectionResetError(), 3),
        (TimeoutError(), 3),
        (client_error(400, "ExpiredToken"), 1),
        (client_error(403, "AccessDenied"), 1),
        (client_error(404, "NoSuchBucket"), 1),
        (NoCredentialsError(), 1),
        (PermissionError(), 1),
    ],
)
def test_only_what_may_pass_is_tried_again(error, num_tries):
    tried = []

    def call():
        tried.append(1)
        raise error

    with pytest.raises(StorageFailed):
        retried(call, QUICK, threading.Event())
    assert len(tried) == num_tries


def test_pauses_double_and_are_drawn():
    policy = RetryPolicy(tries=9, first_seconds=1, longest_seconds=60)
    assert all(0.7 <= policy.pause(1) <= 1.3 for _ in range(100))
    assert all(5.6 <= policy.pause(4) <= 10.4 for _ in range(100))
    assert all(42 <= policy.pause(9) <= 78 for _ in range(100))
    assert len({policy.pause(4) for _ in range(10)}) > 1
