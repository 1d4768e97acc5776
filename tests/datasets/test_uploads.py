"""Uploads in parts: offsets, owners, limits, digests, expiry; never a half dataset."""

import hashlib
import os
import time
from datetime import timedelta

import pytest
from blake3 import blake3
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from apps.datasets import validation
from apps.datasets.models import Dataset, Upload
from apps.datasets.uploads import files, services
from tests.api.conftest import signed_in
from trainops.concurrency_limit import ServerBusy

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_process")]
URL = "/api/v1/datasets/uploads"
CSV = b"a,b\n1,x\n2,y\n"
PART = "application/offset+octet-stream"


@pytest.fixture
def otto(db):
    return signed_in("otto", "operator").client


def create(client, content=CSV, **fields):
    body = {"filename": "t.csv", "size_bytes": len(content)} | fields
    return client.post(URL, body, content_type="application/json")


def created(client, content=CSV, **fields):
    response = create(client, content, **fields)
    assert response.status_code == 201, response.content
    return response.json()["data"]["id"]


def send(client, upload_id, part, offset, content_type=PART):
    headers = {"Upload-Offset": str(offset)}
    return client.patch(f"{URL}/{upload_id}", part, content_type=content_type, headers=headers)


def finish(client, upload_id):
    return client.post(f"{URL}/{upload_id}/finish")


def require_error(response, status, code):
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code), error
    return error


def left():
    return [path.name for path in files.directory().iterdir()]


def test_parts_become_the_dataset_of_a_single_request(otto):
    upload_id = created(otto, name="Sales")
    for start, end in ((0, 3), (3, 4), (4, len(CSV))):
        sent = send(otto, upload_id, CSV[start:end], start)
        assert (sent.status_code, sent["Upload-Offset"]) == (204, str(end))
        head = otto.head(f"{URL}/{upload_id}")
        assert (head["Upload-Offset"], head["Upload-Length"]) == (str(end), str(len(CSV)))
        assert files.path_of(upload_id).read_bytes() == CSV[:end]
    finished = finish(otto, upload_id)
    assert finished.status_code == 201
    dataset = finished.json()["data"]
    assert (dataset["name"], dataset["filename"], dataset["num_rows"]) == ("Sales", "t.csv", 2)
    assert left() == []
    single = otto.post("/api/v1/datasets", {"file": SimpleUploadedFile("t.csv", CSV)})
    assert (single.status_code, single.json()["data"]) == (200, dataset)


def test_a_finished_upload_is_answered_with_its_dataset(otto):
    upload_id = created(otto)
    send(otto, upload_id, CSV, 0)
    first, again = finish(otto, upload_id), finish(otto, upload_id)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["data"] == again.json()["data"]
    error = require_error(send(otto, upload_id, b"x", len(CSV)), 409, "UPLOAD_FINISHED")
    assert error["details"]["offset"] == len(CSV)
    (row,) = otto.get(URL).json()["data"]
    assert (row["dataset_id"], row["offset"]) == (Dataset.objects.get().pk, len(CSV))


def test_another_offset_is_a_conflict_that_contains_the_right_one(otto):
    upload_id = created(otto)
    send(otto, upload_id, CSV[:5], 0)
    for offset in (0, 4, 6):
        error = require_error(send(otto, upload_id, CSV[5:], offset), 409, "WRONG_OFFSET")
        assert error["details"] == {"upload_id": upload_id, "offset": 5}
    assert files.path_of(upload_id).read_bytes() == CSV[:5]


def test_a_second_writer_is_refused_while_the_first_writes(otto):
    upload_id = created(otto)
    with files.locked(upload_id):
        for response in (
            send(otto, upload_id, CSV, 0),
            finish(otto, upload_id),
            otto.delete(f"{URL}/{upload_id}"),
        ):
            require_error(response, 409, "UPLOAD_BUSY")
    assert send(otto, upload_id, CSV, 0).status_code == 204


def test_an_incomplete_upload_is_not_finished(otto):
    upload_id = created(otto)
    send(otto, upload_id, CSV[:5], 0)
    error = require_error(finish(otto, upload_id), 409, "UPLOAD_INCOMPLETE")
    assert error["details"]["offset"] == 5
    assert not Dataset.objects.exists()
    assert send(otto, upload_id, CSV[5:], 5).status_code == 204


@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
def test_digests_are_verified_at_the_end(otto, algorithm):
    hasher = {"blake3": blake3, "sha256": hashlib.sha256}[algorithm]
    right = f"{algorithm}:{hasher(CSV).hexdigest()}"
    wrong = f"{algorithm}:{hasher(CSV[1:]).hexdigest()}"
    refused, kept = created(otto, digest=wrong), created(otto, digest=right)
    send(otto, refused, CSV, 0)
    error = require_error(finish(otto, refused), 400, "WRONG_DIGEST")
    assert hasher(CSV).hexdigest() in error["details"]["fields"]["digest"]
    assert not Dataset.objects.exists() and left() == []
    require_error(otto.get(f"{URL}/{refused}"), 404, "UPLOAD_NOT_FOUND")
    send(otto, kept, CSV, 0)
    assert finish(otto, kept).status_code == 201


def test_a_table_that_is_refused_leaves_nothing(otto):
    bad = b"a,a\n1,2\n"
    upload_id = created(otto, bad)
    send(otto, upload_id, bad, 0)
    assert finish(otto, upload_id).status_code == 400
    assert not Upload.objects.exists() and not Dataset.objects.exists() and left() == []


@pytest.mark.parametrize(("error", "status"), [(ServerBusy, 503), (validation.disk_full, 507)])
def test_what_passes_keeps_the_upload(otto, monkeypatch, error, status):
    def fail(*_, **__):
        raise error()

    upload_id = created(otto)
    send(otto, upload_id, CSV, 0)
    with monkeypatch.context() as patched:
        patched.setattr(validation, "normalise", fail)
        assert finish(otto, upload_id).status_code == status
    assert finish(otto, upload_id).status_code == 201


def test_only_the_owner_continues(otto):
    upload_id = created(otto)
    ada = signed_in("ada", "admin").client
    for response in (
        ada.get(f"{URL}/{upload_id}"),
        send(ada, upload_id, CSV, 0),
        finish(ada, upload_id),
        ada.delete(f"{URL}/{upload_id}"),
    ):
        require_error(response, 404, "UPLOAD_NOT_FOUND")
    assert ada.get(URL).json()["data"] == []
    assert signed_in("vera", "viewer").client.post(URL).status_code == 403
    assert otto.delete(f"{URL}/{upload_id}").status_code == 204
    assert not Upload.objects.exists()


def test_a_part_beyond_the_size_is_refused_unread(otto):
    upload_id = created(otto)
    error = require_error(send(otto, upload_id, CSV + b"x", 0), 413, "UPLOAD_TOO_LARGE")
    assert error["details"]["allowed"] == len(CSV)
    assert files.received(upload_id) == 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"size_bytes": -1}, "size_bytes"),
        ({"size_bytes": 2**63}, "size_bytes"),
        ({"filename": ""}, "filename"),
        ({"digest": "md5:0"}, "digest"),
        ({"columns": "x"}, "columns"),
        ({"fingerprint": "x" * 201}, "fingerprint"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_bad_creation_names_the_field(otto, fields, named):
    response = create(otto, **fields)
    assert response.status_code == 400
    assert named in response.json()["error"]["details"]["fields"]


def test_bad_headers_are_named(otto):
    upload_id = created(otto)
    for offset in ("", "-1", "x", "9" * 30):
        assert "Upload-Offset" in send(otto, upload_id, CSV, offset).json()["error"]["message"]
    assert send(otto, upload_id, CSV, 0, "application/json").status_code == 415


def test_the_size_is_limited_at_the_creation(otto, settings):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={"max_upload_bytes": 10})
    require_error(create(otto), 413, "UPLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [("max_open_uploads_per_person", 1), ("max_open_upload_bytes_per_person", len(CSV) + 1)],
)
def test_open_uploads_of_a_person_are_limited(otto, settings, limit, allowed):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={limit: allowed})
    upload_id = created(otto)
    error = require_error(create(otto), 409, "LIMIT_REACHED")
    assert error["details"]["limit"] == f"TRAINOPS_{limit.upper()}"
    assert create(signed_in("olga", "operator").client).status_code == 201
    send(otto, upload_id, CSV, 0)
    assert finish(otto, upload_id).status_code == 201
    assert create(otto).status_code == 201  # a finished one does not count


def test_a_full_disk_is_reported_at_the_creation(otto, monkeypatch):
    usage = services.shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(services.shutil, "disk_usage", lambda _: usage)
    require_error(create(otto), 507, "DISK_FULL")


def age(upload_id, seconds):
    Upload.objects.filter(pk=upload_id).update(
        changed_at=timezone.now() - timedelta(seconds=seconds)
    )
    if files.path_of(upload_id).exists():
        os.utime(files.path_of(upload_id), (time.time() - seconds,) * 2)


def test_the_sweep_deletes_what_was_unused_for_a_day(otto):
    fresh, old, arriving, writing = (created(otto) for _ in range(4))
    for each in (fresh, old, arriving, writing):
        send(otto, each, CSV[:3], 0)
    age(fresh, services.EXPIRE_SECONDS - 60)
    for each in (old, arriving, writing):
        age(each, services.EXPIRE_SECONDS + 60)
    os.utime(files.path_of(arriving))
    files.path_of("up_0000000000000000").write_bytes(b"of no row")
    age("up_0000000000000000", services.EXPIRE_SECONDS + 60)
    with files.locked(writing):
        assert services.sweep() == 2
    assert set(Upload.objects.values_list("pk", flat=True)) == {fresh, arriving, writing}
    assert sorted(left()) == sorted(f"{each}.part" for each in (fresh, arriving, writing))


@pytest.mark.parametrize("is_row_only", [False, True])
def test_the_sweep_leaves_an_upload_that_continues_at_that_moment(is_row_only, otto, monkeypatch):
    upload_id = created(otto)
    send(otto, upload_id, CSV[:3], 0)
    age(upload_id, services.EXPIRE_SECONDS + 60)
    locked = files.locked

    def continued(given):
        monkeypatch.setattr(files, "locked", locked)
        send(otto, upload_id, CSV[3:6], 3)
        if is_row_only:  # the clock of the disk is behind
            os.utime(files.path_of(upload_id), (0, 0))
        return locked(given)

    monkeypatch.setattr(files, "locked", continued)
    assert services.sweep() == 0
    assert files.path_of(upload_id).read_bytes() == CSV[:6]
    assert Upload.objects.get().pk == upload_id


def test_deleting_the_dataset_forgets_its_upload(otto):
    upload_id = created(otto)
    send(otto, upload_id, CSV, 0)
    finish(otto, upload_id)
    assert otto.delete(f"/api/v1/datasets/{Dataset.objects.get().pk}").status_code == 200
    assert not Upload.objects.exists()
