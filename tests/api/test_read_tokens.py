"""Tokens of the scope `read`: every request that could change something is refused."""

import re
from pathlib import Path

import pytest
import yaml
from django.test import Client
from rest_framework.permissions import SAFE_METHODS

from apps.operations.lifecycle import State
from apps.operations.models import Operation
from tests.operations.rows import in_state
from trainops.http.models import Token, TokenScope

PATHS = yaml.safe_load(Path("docs/openapi.yaml").read_text())["paths"]
REQUESTS = [
    (method.upper(), re.sub(r"{\w+}", "1", path))
    for path, methods in PATHS.items()
    for method in methods
    if method in ("get", "post", "put", "patch", "delete")
]


@pytest.fixture
def send(admin):
    """Send a request with a token of a scope; `admin` may do everything."""

    def send(scope, method, path, body=""):
        secret = Token.objects.create(admin.user, scope=scope)[1]
        headers = {"Authorization": f"Bearer {secret}"}
        return Client().generic(method, path, body, "application/json", headers=headers)

    return send


@pytest.mark.slow
def test_no_request_that_changes_something_is_accepted(send):
    changing = [each for each in REQUESTS if each[0] not in SAFE_METHODS]
    assert len(changing) > 50
    for method, path in changing:
        refused = send(TokenScope.READ, method, path, "{}")
        assert refused.status_code == 403, (method, path)
        assert "only reads" in refused.json()["error"]["message"], (method, path)


@pytest.mark.slow
def test_it_reads_what_its_owner_reads(send, admin):
    operation = in_state(State.CANCELLED, admin.user)
    known = {"/operations/1": f"/operations/{operation.pk}"}
    for method, path in REQUESTS:
        if method == "GET" and "/ready" not in path:  # depends on a broker
            path = next((path.replace(a, b) for a, b in known.items() if a in path), path)
            expected = send(TokenScope.USER, method, path).status_code
            assert send(TokenScope.READ, method, path).status_code == expected, path


def test_a_password_in_the_body_does_not_widen_it(send):
    assert send(TokenScope.READ, "POST", "/api/v1/tokens", '{"name": "more"}').status_code == 403
    assert not Token.objects.filter(name="more").exists()


def test_an_operation_stays_as_it_is(send, admin):
    operation = in_state(State.RUNNING, admin.user)
    path = f"/api/v1/operations/{operation.pk}"
    assert send(TokenScope.READ, "POST", f"{path}/cancel").status_code == 403
    assert Operation.objects.get().stop_requested == ""
    assert send(TokenScope.USER, "POST", f"{path}/cancel").status_code < 300
    assert Operation.objects.get().stop_requested == "cancel"
