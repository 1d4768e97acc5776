"""The registry over HTTP, by worker tokens."""

import pytest
from django.test import Client

from apps.operations.models import Operation
from apps.workers.models import LoadSample, Worker
from tests.api.answers import data, error
from tests.operations.rows import claimed, forget_lease
from trainops.http.models import Token, TokenScope

REGISTRATION = {
    "worker_id": "gpu-box-1",
    "worker_type": "custom",
    "endpoint_url": "http://gpu-box:8000/",
    "capabilities": {"gpu": True, "gpu_type": "A100"},
    "current_operation_id": None,
}


@pytest.fixture
def worker(admin):
    """What a worker calls with: a token of the scope worker, no person."""
    _, secret = Token.objects.create(admin.user, scope=TokenScope.WORKER)
    client = Client(headers={"Authorization": f"Bearer {secret}"})

    def call(path, body=None, method="post"):
        return client.generic(
            method.upper(), f"/api/v1/workers/{path}", *_json(body), "application/json"
        )

    return call


def _json(body):
    import orjson

    return [orjson.dumps(body) if body is not None else b""]


def test_registering_again_changes_nothing_but_what_is_reported(worker, viewer):
    first = data(worker("register", REGISTRATION))
    assert (first["worker_id"], first["status"]) == ("gpu-box-1", "AVAILABLE")
    again = data(worker("register", REGISTRATION | {"slots": 4}))
    assert again["registered_at"] == first["registered_at"]
    shown = data(viewer.get("workers/gpu-box-1"))
    assert (shown["slots"], shown["capabilities"]["gpu_type"]) == (4, "A100")
    response = viewer.get("workers")
    assert ([each["worker_id"] for each in data(response)]) == ["gpu-box-1"]
    assert response.json()["total_count"] == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"worker_id": "../x"}, "worker_id"),
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "x" * 121}, "worker_id"),
        ({"capabilities": []}, "capabilities"),
        ({"endpoint_url": "javascript:alert(1)"}, "endpoint_url"),
        ({"slots": 0}, "slots"),
        ({"kinds": ["cooking"]}, "kinds.0"),
        ({"running": [{"operation_id": "x"}]}, "running.0.attempt"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_bad_registration_names_the_field(worker, wrong, field):
    problem = error(worker("register", REGISTRATION | wrong), 400, "VALIDATION_ERROR")
    assert field in problem["details"]["fields"]
    assert not Worker.objects.exists()


def test_a_heartbeat_renews_leases_and_brings_stop_requests(worker, operator):
    worker("register", REGISTRATION)
    operation = claimed(operator.user, "gpu-box-1")
    forget_lease(operation)
    held = {"running": [{"operation_id": operation.pk, "attempt": 1}]}
    response = data(worker("gpu-box-1/heartbeat", held))
    assert (response["status"], response["orders"][0]["directive"]) == ("BUSY", "proceed")
    assert not Operation.objects.silent().exists()
    operator.post(f"operations/{operation.pk}/cancel")
    (order,) = data(worker("gpu-box-1/heartbeat", held))["orders"]
    assert order["directive"] == "cancel"


def test_a_worker_that_the_platform_forgot_is_asked_to_register(worker, viewer):
    for path in ("gone/heartbeat", "gone/sync"):
        error(worker(path, {"running": []}), 404, "WORKER_NOT_FOUND")
    error(worker("gone", method="delete"), 404, "WORKER_NOT_FOUND")
    error(viewer.get("workers/gone"), 404, "WORKER_NOT_FOUND")


def test_who_may_call_what(worker, viewer, operator, admin):
    worker("register", REGISTRATION)
    error(operator.post("workers/register", REGISTRATION), 403, "PERMISSION_DENIED")
    error(operator.post("workers/gpu-box-1/heartbeat"), 403, "PERMISSION_DENIED")
    error(operator.delete("workers/gpu-box-1"), 403, "PERMISSION_DENIED")
    error(operator.post("workers/gpu-box-1/drain"), 403, "PERMISSION_DENIED")
    error(worker("gpu-box-1/drain"), 403, "PERMISSION_DENIED")
    assert data(admin.post("workers/gpu-box-1/drain"))["status"] == "DRAINING"
    assert data(worker("gpu-box-1/heartbeat"))["is_draining"] is True
    assert data(admin.post("workers/gpu-box-1/undrain"))["status"] == "AVAILABLE"
    data(worker("gpu-box-1", method="delete"))
    assert not Worker.objects.exists()


LOAD = {
    "cpu_percent": 37.5, "memory_bytes": 12 * 2**30,
    "gpus": [{"id": "GPU-1", "percent": 90.0, "memory_bytes": 2**33}],
}  # fmt: skip


def test_samples_of_the_load_are_sent_and_read(worker, viewer):
    data(worker("register", REGISTRATION))
    data(worker("gpu-box-1/heartbeat", {"load": LOAD}))
    found = data(viewer.get("workers/gpu-box-1/load"))
    assert found["worker_id"] == "gpu-box-1"
    (sample,) = found["samples"]
    assert {name: sample[name] for name in LOAD} == LOAD
    error(viewer.get("workers/nobody/load"), 404, "WORKER_NOT_FOUND")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cpu_percent": 101}, "load.cpu_percent"),
        ({"memory_bytes": -1}, "load.memory_bytes"),
        ({"gpus": [{"id": "x", "percent": 1, "memory_bytes": 2**63}]}, "load.gpus"),
        ({"disk": 1}, "load.disk"),
    ],
)
def test_a_wrong_sample_of_the_load_is_refused_by_field(worker, change, field):
    data(worker("register", REGISTRATION))
    refused = worker("gpu-box-1/heartbeat", {"load": LOAD | change})
    fields = error(refused, 400, "VALIDATION_ERROR")["details"]["fields"]
    assert any(name.startswith(field) for name in fields), fields
    assert not LoadSample.objects.exists()
