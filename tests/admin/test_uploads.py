"""Uploads in parts, as the admin shows and deletes them."""

import io

import pytest
from django.contrib.admin.utils import quote

from apps.datasets.models import Upload
from apps.datasets.uploads import files
from apps.datasets.uploads import services as uploads
from tests.admin.test_buttons import SUBMITTED, messages_of


@pytest.fixture
def upload(operator, settings, tmp_path):
    """An upload of 5 bytes, of which 2 are received."""
    settings.DATA_DIR = tmp_path
    upload = uploads.create(owner=operator.user, filename="large.csv", size_bytes=5)
    receive(upload, 0, b"a,")
    return upload


def receive(upload, offset, part):
    uploads.append(upload.pk, owner=upload.owner, offset=offset, num_bytes=len(part),
                   content=io.BytesIO(part))  # fmt: skip


def upload_at(upload, page):
    return f"/admin/datasets/upload/{quote(upload.pk)}/{page}/"


def test_an_upload_is_shown_with_what_was_received(viewer, upload):
    page = viewer.get(upload_at(upload, "change")).content.decode().replace("\xa0", " ")
    assert all(text in page for text in ("large.csv", "2 bytes", "5 bytes", "receiving", "otto"))
    assert "Delete" not in page
    receive(upload, 2, b"b\n1")
    assert "received" in viewer.get("/admin/datasets/upload/").content.decode()


@pytest.mark.parametrize("who", ["operator", "admin"])
def test_an_upload_is_deleted_with_its_file_by_its_owner_and_admins(request, upload, who):
    client = request.getfixturevalue(who)
    assert client.get(upload_at(upload, "remove")).status_code == 200
    assert files.path_of(upload.pk).exists()
    response = client.post(upload_at(upload, "remove"), SUBMITTED)
    assert messages_of(client, response) == f"Deleted {upload.pk}."
    assert not Upload.objects.exists()
    assert files.names() == []


def test_an_upload_of_another_person_or_one_that_receives_a_part_stays(colleague, admin, upload):
    assert colleague.post(upload_at(upload, "remove"), SUBMITTED).status_code == 403
    with files.locked(upload.pk):
        response = admin.post(upload_at(upload, "remove"), SUBMITTED)
    assert "Another request is writing" in messages_of(admin, response)
    assert Upload.objects.exists()
    assert files.names() == [upload.pk]
