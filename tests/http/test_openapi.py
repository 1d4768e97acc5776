"""The schema says what the server does."""

from pathlib import Path

import pytest
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "openapi.yaml"
METHODS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture(scope="module")
def schema():
    generated = SchemaGenerator().get_schema(request=None, public=True)
    validate_schema(generated)
    return generated


def operations(schema):
    for path, methods in schema["paths"].items():
        for method in METHODS & set(methods):
            yield f"{method} {path}", methods[method]


def resolve(schema, node):
    while "$ref" in node:
        node = schema["components"]["schemas"][node["$ref"].rpartition("/")[2]]
    return node


@pytest.mark.slow
def test_every_answer_is_described_in_the_envelope(schema):
    for name, operation in operations(schema):
        for status, response in operation["responses"].items():
            for content in response.get("content", {}).values():
                body = resolve(schema, content["schema"])
                success = body["properties"]["success"]["enum"]
                assert success == [status.startswith("2")], f"{name} {status}"


def test_every_operation_describes_its_failures(schema):
    for name, operation in operations(schema):
        assert {"400", "401", "403", "default"} <= set(operation["responses"]), name
        assert ("404" in operation["responses"]) or "{" not in name


def test_lists_have_counts_and_links(schema):
    response = schema["paths"]["/api/v1/datasets"]["get"]["responses"]["200"]
    body = resolve(schema, response["content"]["application/json"]["schema"])
    assert set(body["required"]) == {"success", "data", "total_count", "next", "previous"}


def test_names_of_operations_are_unique(schema):
    names = [operation["operationId"] for _, operation in operations(schema)]
    assert len(names) == len(set(names))


def test_tokens_are_a_security_scheme(schema):
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


def test_every_operation_has_a_summary_and_none_that_of_a_base_class(schema):
    missing = [name for name, operation in operations(schema) if not operation.get("summary")]
    assert not missing
    assert "Refuses fields" not in str(schema)


@pytest.mark.slow
def test_the_document_of_the_repository_is_the_generated_one(tmp_path):
    generated = tmp_path / "openapi.yaml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", generated)
    renew = f"manage.py spectacular --file {DOCUMENT.relative_to(ROOT)}"
    assert DOCUMENT.read_text() == generated.read_text(), f"renew it: {renew}"


@pytest.mark.slow
@pytest.mark.django_db
def test_the_schema_is_served_to_those_who_are_signed_in(client, person):
    assert client.get("/api/schema/").json()["error"]["code"] == "NOT_AUTHENTICATED"
    person.is_superuser = True
    person.save()
    client.force_login(person)
    assert b"openapi: 3" in client.get("/api/schema/").content
