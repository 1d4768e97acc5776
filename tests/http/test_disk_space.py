"""Uploads leave room on the disk for checkpoints."""

import shutil
from collections import namedtuple

import pytest
from django.conf import settings as configured
from rest_framework.parsers import JSONParser, MultiPartParser

import apps.datasets.urls
import apps.operations.api.urls
from trainops.gateway.bodies import NoSpace
from trainops.http.admission import Admission

# Every address of the API that takes a form with a file.
FORMS_OF_API = [
    f"/api/v1/{each.pattern}"
    for each in [*apps.datasets.urls.urlpatterns, *apps.operations.api.urls.urlpatterns]
    if MultiPartParser in each.callback.cls.parser_classes
    and JSONParser not in each.callback.cls.parser_classes
]
Usage = namedtuple("Usage", "total used free")
RESERVE = 1024**3


@pytest.fixture
def free(monkeypatch):
    def set_to(num_bytes):
        usage = Usage(0, 0, num_bytes)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    return set_to


@pytest.mark.parametrize("path", [*FORMS_OF_API, "/datasets/upload"])
def test_an_upload_needs_room_for_four_copies_besides_the_reserve(free, path):
    environ = {"PATH_INFO": path}
    free(RESERVE + 4000)
    assert Admission().has_space(environ, 1000)
    assert not Admission().has_space(environ, 1001)


def test_a_checkpoint_of_a_remote_worker_may_take_the_reserve(free):
    free(0)
    path = "/api/v1/workers/w/attempts/op_x/1/checkpoints/c/files/model.pt"
    assert Admission().has_space({"PATH_INFO": path}, 10**9)


@pytest.mark.parametrize(
    ("path", "kind"), [("/api/v1/datasets", "application/json"), ("/datasets/upload", "text/plain")]
)
def test_a_full_disk_is_reported(path, kind):
    answered = {}
    application = Admission().refusal({"PATH_INFO": path}, NoSpace("There is no room."))
    body = b"".join(
        application({}, lambda status, headers: answered.update(dict(headers), status=status))
    )
    assert (answered["status"][:3], answered["Content-Type"]) == ("507", kind)
    assert b"There is no room." in body


def test_uploads_wait_on_the_data_disk_and_not_in_tmp():
    assert configured.FILE_UPLOAD_TEMP_DIR.parent == configured.DATA_DIR
    assert configured.FILE_UPLOAD_TEMP_DIR.is_dir()


@pytest.mark.parametrize("path", FORMS_OF_API)
def test_a_form_of_the_api_may_be_as_large_as_an_upload(path, settings):
    assert Admission().upload_bytes({"PATH_INFO": path}) > settings.THRESHOLDS.max_upload_bytes
