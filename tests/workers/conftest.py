"""A worker that is not Celery's: it knows an address, a token and HTTP, and nothing of Python."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User

from apps.operations.attempts import remote_checks
from apps.operations.requests import services
from apps.operations.scheduling import sweeps
from tests.operations.rows import forget_lease
from trainops.http import closing
from trainops.http.models import Token, TokenScope


class ForeignWorker:
    def __init__(self, url: str, secret: str, worker_id: str = "gpu-box") -> None:
        self.netloc, self.secret, self.worker_id = urlsplit(url).netloc, secret, worker_id

    def register(self, **more: Any) -> Any:
        """Register as SPEC 4.2 has it, with whatever else there is to tell."""
        return self.data("POST", "register", {
            "worker_id": self.worker_id,
            "worker_type": "custom",
            "endpoint_url": "http://gpu-box:9000/",
            "capabilities": {"gpu": True, "gpu_type": "A100"},
            "current_operation_id": None,
        } | more)  # fmt: skip

    def tell(self, endpoint: str, **report: Any) -> Any:
        """Report to one of the endpoints: register, heartbeat or sync."""
        if endpoint == "register":
            return self.register(**report)
        return self.data("POST", f"{self.worker_id}/{endpoint}", {"running": []} | report)

    def data(self, method: str, path: str, body: Any = None) -> Any:
        status, _, answer = self.ask(method, path, body)
        assert (status, answer["success"]) == (200, True), answer
        return answer["data"]

    def refused(self, status: int, code: str, method: str, path: str, body: Any = None) -> Any:
        got, headers, answer = self.ask(method, path, body)
        assert (got, answer["success"], answer["error"]["code"]) == (status, False, code), answer
        return headers, answer["error"]

    def claim(self) -> str:
        """Take what waits; return the path of the attempt's calls."""
        taken = self.data("POST", f"{self.worker_id}/claim", {"kinds": ["training"]})["claimed"]
        return f"{self.worker_id}/attempts/{taken['operation_id']}/{taken['attempt']}"

    def open(self, attempt: str, step: int) -> str:
        """Open a checkpoint; return the name of its directory."""
        body = {"type": "periodic", "step": step}
        status, _, answer = self.ask("POST", f"{attempt}/checkpoints", body)
        assert status == 201, answer
        return answer["data"]["directory"]

    def send(self, attempt: str, directory: str, name: str, content: bytes) -> dict[str, Any]:
        """Send a file; return what a commit names it by."""
        path = f"{attempt}/checkpoints/{directory}/files/{name}"
        status, _, answer = self.ask("PUT", path, content)
        assert status == 200, answer
        return answer["data"]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
        connection = http.client.HTTPConnection(self.netloc, timeout=20)
        headers = {"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"}
        content = body if isinstance(body, bytes) else body and json.dumps(body)
        try:
            connection.request(method, f"/api/v1/workers/{path}", content, headers)
            response = connection.getresponse()
            return response.status, response.headers, json.loads(response.read())
        finally:
            connection.close()


@pytest.fixture
def worker(live_server):
    admin = User.objects.create_superuser("ada")
    _, secret = Token.objects.create(admin, scope=TokenScope.WORKER)
    return ForeignWorker(live_server.url, secret)


@pytest.fixture
def is_closing(monkeypatch):
    """Say that the server was asked to stop; the memory that says so is this test's own."""
    monkeypatch.setattr(closing, "_said", bytearray(1))
    closing.announce()


def give_up(operation, policy="never"):
    """What the orphan detector does after the lease has run out."""
    forget_lease(operation)
    operation.row.update(
        config=operation.config | {"restart": {"policy": policy, "max_restarts": 3}}
    )
    assert sweeps.recover_lost(actor="beat") == 1
    return services.get(operation.pk)


@pytest.fixture(autouse=True)
def _no_background_checks(monkeypatch):
    """Most tests commit files that no job could load; those of the checks switch them on."""
    monkeypatch.setattr(remote_checks, "begin", lambda *_: None)
