"""Deprecated endpoints say so in each response, as the policy in docs/api.md promises."""

import re
from pathlib import Path

import pytest
from django.urls import resolve
from drf_spectacular.generators import SchemaGenerator

from trainops.http.deprecation import Deprecated

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()


def deprecated_paths():
    schema = SchemaGenerator().get_schema(request=None, public=True)
    return {
        path
        for path, methods in schema["paths"].items()
        for operation in methods.values()
        if operation.get("deprecated")
    }


def view_of(path):
    return resolve(re.sub(r"{\w+}", "1", path)).func.view_class


@pytest.mark.slow
def test_every_deprecated_endpoint_sends_the_headers_and_is_in_the_table():
    paths = deprecated_paths()
    assert paths
    for path in paths:
        view = view_of(path)
        assert issubclass(view, Deprecated)
        ending = path.partition("/attempts/")[2]
        row = next(line for line in PAGE.splitlines() if f"attempts/{ending}`" in line[:80])
        assert f"| {view.deprecated_on} | {view.sunset_on} |" in row


def test_a_failure_has_the_headers_too(client, db):
    response = client.post("/api/v1/workers/w/attempts/op/1/spending")
    assert response.status_code == 401
    assert response["Deprecation"] == "@1795651200"
    assert response["Sunset"] == "Wed, 01 Dec 2027 00:00:00 GMT"
    assert response["Link"].startswith('</api/docs/>; rel="deprecation"')


def test_other_endpoints_do_not_send_them(client, db):
    assert "Deprecation" not in client.post("/api/v1/workers/w/attempts/op/1/ledger")
