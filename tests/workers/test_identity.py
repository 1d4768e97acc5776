"""A worker token acts for one worker, and nothing over HTTP for a worker of this installation."""

import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.urls import resolve
from django.utils import timezone

from apps.operations.lifecycle import State
from apps.operations.requests import services
from apps.workers import registry, urls
from apps.workers.models import Worker
from tests.operations.rows import claimed
from tests.workers.conftest import ForeignWorker, give_up
from trainops.http.models import Token, TokenScope

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
LOCAL = "12@worker1-host"


@pytest.fixture
def other(live_server, worker):
    """Another worker with a token of its own."""
    _, secret = Token.objects.create(User.objects.get(username="ada"), scope=TokenScope.WORKER)
    return ForeignWorker(live_server.url, secret, "other-box")


def speaking_for(worker, worker_id):
    """The same token under the name of another worker."""
    return ForeignWorker(f"http://{worker.netloc}", worker.secret, worker_id)


def completed(operation):
    outcome = {"outcome": "completed", "result": {"forged": True}}
    return [{"operation_id": operation.pk, "attempt": 1} | outcome]


def every_call(operation):
    held = {"running": [{"operation_id": operation.pk, "attempt": 1}]}
    attempt = f"attempts/{operation.pk}/1"
    yield "POST", "heartbeat", held
    yield "POST", "heartbeat", {"completed": completed(operation)}
    yield "POST", "sync", held
    yield "POST", "claim", {"kinds": ["training"]}
    yield "POST", f"{attempt}/restored", {"step": 0, "receipt": {}}
    yield "POST", f"{attempt}/progress", {"step": 1, "total_steps": 2}
    yield "POST", f"{attempt}/media", {"items": []}
    yield "POST", f"{attempt}/checkpoints", {"type": "periodic", "step": 1}
    yield "PUT", f"{attempt}/checkpoints/x/files/model.pt", {}
    yield "POST", f"{attempt}/checkpoints/x/commit", {"files": []}
    yield "GET", f"{attempt}/files/x/model.pt", None
    yield "POST", f"{attempt}/damaged", {"checkpoint_id": "x"}
    yield "GET", f"{attempt}/inputs/x", None
    yield "POST", f"{attempt}/ledger", {"entries": [{}]}
    yield "POST", f"{attempt}/spending", {"entries": [{}]}
    yield "POST", f"{attempt}/end", {"outcome": "completed", "result": {"forged": True}}


def test_every_address_that_names_a_worker_is_among_the_calls(person):
    """Else a token could speak at one of them for another worker, and no test would fail."""
    called = [f"workers/x/{path}" for _, path, _ in every_call(claimed(person, "gpu-box"))]
    found = {resolve(f"/api/v1/{path}").url_name for path in called}
    named = {each.name for each in urls.urlpatterns if "worker_id" in str(each.pattern)}
    # these have no method that takes the token of a worker
    people = {"api-worker", "api-worker-load", "api-worker-drain", "api-worker-undrain"}
    assert named - found == people


def refused_everywhere(worker, worker_id, operation):
    mask = speaking_for(worker, worker_id)
    for method, path, body in every_call(operation):
        mask.refused(403, "PERMISSION_DENIED", method, f"{worker_id}/{path}", body)
    body = {"worker_id": worker_id, "completed": completed(operation)}
    mask.refused(403, "PERMISSION_DENIED", "POST", "register", body)
    mask.refused(403, "PERMISSION_DENIED", "DELETE", worker_id)
    assert services.get(operation.pk).state == State.RUNNING


@pytest.mark.slow
def test_a_token_speaks_only_for_the_worker_that_it_registered(worker, other, person):
    worker.register(kinds=["training"])
    other.register(kinds=["training"])
    operation = claimed(person, "gpu-box", host=registry.remote_host("gpu-box"))
    refused_everywhere(other, "gpu-box", operation)
    assert worker.ask("POST", "gpu-box/heartbeat", {"completed": completed(operation)})[0] == 200
    assert services.get(operation.pk).state == State.COMPLETED


def test_a_token_that_has_not_registered_acts_for_no_worker(worker, other, person):
    worker.register(kinds=["training"])
    operation = claimed(person, "gpu-box", host=registry.remote_host("gpu-box"))
    refused_everywhere(other, "gpu-box", operation)


@pytest.mark.parametrize("is_there", [True, False], ids=["registered", "has left"])
@pytest.mark.parametrize("scope", [TokenScope.WORKER, TokenScope.USER])
def test_http_acts_for_no_worker_of_this_installation(live_server, worker, person, scope, is_there):
    if is_there:
        registry.register(worker_id=LOCAL, kinds=["training"])
    operation = claimed(person, LOCAL)
    _, secret = Token.objects.create(User.objects.get(username="ada"), scope=scope)
    refused_everywhere(ForeignWorker(live_server.url, secret), LOCAL, operation)


def test_what_a_worker_of_this_installation_lost_is_not_completed_in_its_name(worker, person):
    operation = claimed(person, LOCAL)
    give_up(operation)
    body = {"worker_id": LOCAL, "completed": completed(operation)}
    worker.refused(403, "PERMISSION_DENIED", "POST", "register", body)
    assert services.get(operation.pk).state == State.FAILED


def test_a_registration_does_not_replace_a_worker_of_this_installation():
    registry.register(worker_id=LOCAL, kinds=["training"])
    with pytest.raises(registry.WorkerIsLocal):
        registry.register(worker_id=LOCAL, worker_type="custom")
    assert Worker.objects.get().kinds == ["training"]


def test_a_new_token_takes_over_once_the_old_one_is_revoked_or_has_expired(worker, other):
    worker.register()
    successor = speaking_for(other, "gpu-box")
    successor.refused(403, "PERMISSION_DENIED", "POST", "register", {"worker_id": "gpu-box"})
    past = timezone.now() - timedelta(minutes=1)
    Token.objects.filter(worker_id="gpu-box").update(expiry=past)
    successor.register()
    assert Token.objects.get(worker_id="gpu-box").user.username == "ada"
    worker.refused(401, "AUTHENTICATION_FAILED", "POST", "gpu-box/heartbeat", {})


def test_of_two_tokens_that_register_one_worker_at_once_exactly_one_wins(person):
    tokens = [Token.objects.create(person, scope=TokenScope.WORKER)[0] for _ in range(6)]
    start, winners = threading.Barrier(len(tokens)), []

    def register(token):
        start.wait(10)
        try:
            registry.bind(token, "gpu-box")
            winners.append(token)
        except registry.WorkerOfAnotherToken:
            pass
        finally:
            connection.close()

    threads = [threading.Thread(target=register, args=[token]) for token in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [Token.objects.get(worker_id="gpu-box")] == winners
