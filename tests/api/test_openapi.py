"""The OpenAPI document is complete, and every answer is what it says."""

from typing import Any

import pytest
import schemathesis
from django.conf import settings as django_settings
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.urls import get_resolver
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from apps.datasets.uploads import services as uploads
from apps.datasets.uploads.api import PART_TYPE
from apps.operations.lifecycle import State
from apps.operations.models import LogChunk
from apps.operations.scheduling import readiness
from apps.workers import registry
from tests.api.saved import saved
from tests.operations.rows import in_state
from trainops.http.models import Token
from trainops.wsgi import application

pytestmark = pytest.mark.slow

LEFT_OUT = {"POST /api/v1/tokens", "POST /api/v1/datasets"}  # writes that have tests of their own
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


schemathesis.serializer.alias(PART_TYPE, "application/octet-stream")


@pytest.fixture
def one_connection(db):
    """The test's transaction outlives each request, as with Django's own test client."""
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    yield
    request_started.connect(close_old_connections)
    request_finished.connect(close_old_connections)


DOCUMENT = SchemaGenerator().get_schema(public=True)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
SCHEMA.app = application
OPERATIONS = {result.ok().label: result.ok() for result in SCHEMA.get_all_operations()}


@pytest.fixture
def known(admin, monkeypatch) -> dict[str, Any]:
    """Ids that exist, so that answers other than 404 are seen, too."""
    monkeypatch.setattr(readiness, "_broker", lambda: "")  # none runs beside this test
    operation = in_state(State.CANCELLED, admin.user)
    checkpoint = saved(operation)
    LogChunk.objects.create(operation_id=operation.pk, attempt=1, text="hello\n")
    registry.register(worker_id="worker-1", capabilities={"gpu": False})
    _, secret = Token.objects.create(admin.user)
    return {
        "ids": {
            "operation_id": operation.pk,
            "checkpoint_id": checkpoint.pk,
            "worker_id": "worker-1",
            "name": "model.pt",
            "upload_id": uploads.create(owner=admin.user, filename="a.csv", size_bytes=9).pk,
        },
        # schemathesis does not decompress what it receives from a WSGI application
        "headers": {"Authorization": f"Bearer {secret}", "Accept-Encoding": "identity"},
    }


@pytest.mark.parametrize("label", sorted(OPERATIONS.keys() - LEFT_OUT))
def test_every_answer_is_what_the_document_says(label, known, one_connection):
    @given(case=OPERATIONS[label].as_strategy(), is_known=st.sampled_from([True, True, False]))
    @settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def holds(case, is_known):
        if is_known:
            given_ids = case.path_parameters or {}
            case.path_parameters = {n: known["ids"].get(n, given_ids[n]) for n in given_ids}
        case.call_and_validate(headers=known["headers"], checks=CHECKS)

    holds()


def test_every_address_of_the_api_is_described():
    described = {_shape(path) for path in DOCUMENT["paths"]}
    missing = {path for path in _routes() if path.startswith("api/v1/")} - described
    assert missing == set()
    assert all(
        operation.get("operationId")
        for methods in DOCUMENT["paths"].values()
        for method, operation in methods.items()
        if method in ("get", "post", "delete")
    )


def _shape(path: str) -> str:
    return "".join("*" if "{" in part else part for part in _parts(path))


def _parts(path: str) -> list[str]:
    return [piece for part in path.strip("/").split("/") for piece in (part, "/")][:-1]


def _routes(patterns: Any = None, prefix: str = "") -> set[str]:
    found = set()
    for pattern in patterns or get_resolver(django_settings.ROOT_URLCONF).url_patterns:
        route = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            found |= _routes(pattern.url_patterns, route)
        else:
            found.add("".join("*" if "<" in part else part for part in _parts(route)))
    return found
