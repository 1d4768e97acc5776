"""Exports are made once, kept for a day, and gone with their operation."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from apps.checkpoints.models import Checkpoint
from apps.operations.files import exchange, exports
from apps.operations.models import Operation
from apps.operations.requests import deletion, services
from tests import confinement
from tests.api.conftest import signed_in
from tests.formats.originals import original
from tests.operations.test_exchange import _foreign, _storage_of_its_own, take_in

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
fixtures = (_foreign, _storage_of_its_own)


@pytest.fixture
def imported(db, tmp_path):
    """An operation with one checkpoint."""
    operator = signed_in("otto", "operator")
    answer = take_in(operator, original("training", tmp_path))
    operation = Operation.objects.get(pk=answer.json()["data"]["id"])
    services.cancel(operation_id=operation.pk, actor=operation.owner)
    return operation


@pytest.fixture
def calls(monkeypatch):
    """The requests that processes were started for."""
    found = []

    def call(module, request, limits):
        found.append(request)
        return confinement.call(module, request, limits)

    monkeypatch.setattr(exchange, "call", call)
    return found


def checkpoint_of(operation):
    return Checkpoint.objects.select_related("operation").get(operation=operation)


def content(exported):
    with exported.file as file:
        return exported.name, file.read()


def test_the_same_is_made_once_for_all(imported, calls, settings):
    checkpoint = checkpoint_of(imported)
    first = content(exports.export(checkpoint, person="ana"))
    assert content(exports.export(checkpoint, person="ben")) == first
    name, packed = content(exports.export(checkpoint, person="ana", is_packed=True))
    assert name == f"{first[0]}.zip" and packed.startswith(b"PK") and packed != first[1]
    assert len(calls) == 2
    imported.row.update(name="another name")  # which the file holds
    again = content(exports.export(checkpoint_of(imported), person="ana"))
    assert len(calls) == 3 and again != first
    assert not [*settings.DATA_DIR.glob("uploads/*")]


def test_a_person_has_one_export_made_at_a_time(imported, operator_of, monkeypatch):
    """The others are asked to try again; there is no queue."""
    begun, may_end = Event(), Event()

    def call(module, request, limits):
        begun.set()
        assert may_end.wait(30)
        return confinement.call(module, request, limits)

    monkeypatch.setattr(exchange, "call", call)
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(operator_of, 0)
        assert begun.wait(30)
        others = [*threads.map(operator_of, range(7))]
        may_end.set()
        assert first.result().status_code == 200
    for answer in others:
        assert (answer.status_code, answer["Retry-After"]) == (503, "10")
        assert answer.json()["error"]["code"] == "BUSY"


@pytest.fixture
def operator_of(imported):
    path = f"/api/v1/operations/{imported.pk}/export"

    def ask(_):
        from django.db import connection
        from django.test import Client

        try:
            client = Client()
            client.force_login(imported.owner)
            answer = client.get(path)
            if answer.status_code == 200:
                b"".join(answer.streaming_content)
            return answer
        finally:
            connection.close()

    return ask


def test_it_goes_with_its_operation(imported, settings):
    exports.export(checkpoint_of(imported), person="ana").file.close()
    assert [*settings.DATA_DIR.glob("exports/*/*/content")]
    deletion.delete(operation_id=imported.pk, actor=imported.owner)
    assert not [*settings.DATA_DIR.glob("exports/*")]


def test_what_is_made_while_its_operation_is_deleted_is_not_kept(imported, settings, monkeypatch):
    def call(module, request, limits):
        answer = confinement.call(module, request, limits)
        deletion.delete(operation_id=imported.pk, actor=imported.owner)
        return answer

    monkeypatch.setattr(exchange, "call", call)
    _, written = content(exports.export(checkpoint_of(imported), person="ana"))
    assert written and not [*settings.DATA_DIR.glob("exports/*/*")]


def test_what_is_a_day_old_or_too_much_is_removed(imported, settings, monkeypatch):
    checkpoint = checkpoint_of(imported)
    exports.export(checkpoint, person="ana").file.close()
    exports.sweep()
    (kept,) = settings.DATA_DIR.glob("exports/*/*/content")
    os.utime(kept, (0, time.time() - exports.KEPT_SECONDS - 1))
    exports.sweep()
    assert not [*settings.DATA_DIR.glob("exports/*")]
    monkeypatch.setattr(exports, "KEPT_BYTES", 10)
    content(exports.export(checkpoint, person="ana"))
    content(exports.export(checkpoint, person="ana", is_packed=True))
    (kept,) = settings.DATA_DIR.glob("exports/*/*/name")
    assert kept.read_text().endswith(".zip")


def test_a_config_for_a_gpu_is_read_where_there_is_none(db, tmp_path):
    operator = signed_in("otto", "operator")
    answer = take_in(operator, original("training", tmp_path), device="cuda")
    assert answer.status_code == 202, answer.content
    operation = Operation.objects.get(pk=answer.json()["data"]["id"])
    assert operation.config["device"] == "cuda"
    content(exports.export(checkpoint_of(operation), person="otto"))
