"""Makes the OpenAPI document say what is true: every answer is in the envelope."""

from collections.abc import Iterator
from typing import NotRequired, TypedDict

from drf_spectacular.plumbing import get_lib_doc_excludes

from trainops.http.serializers import StrictSerializer

FAILURE = "Failure"
JSON = "application/json"
METHODS = ("get", "post", "put", "patch", "delete")
MEANINGS = {
    "400": "Invalid input; `details.fields` has the wrong fields and the allowed values.",
    "401": "Not authenticated, or the token is invalid.",
    "403": "Permission denied.",
    "404": "Not found.",
    "default": "Any other failure.",
}
Schema = TypedDict(
    "Schema",
    {
        "$ref": str,
        "type": str,
        "format": str,
        "description": str,
        "enum": list[object],
        "nullable": bool,
        "required": list[str],
        "properties": "dict[str, Schema]",
        "additionalProperties": bool,
    },
    total=False,
)


class MediaType(TypedDict, total=False):
    """The content of a response in one format."""

    schema: Schema


class ResponseSchema(TypedDict, total=False):
    """One response of an operation."""

    description: str
    content: dict[str, MediaType]


class OperationSchema(TypedDict):
    """One method of a path."""

    responses: dict[str, ResponseSchema]
    parameters: NotRequired[list[dict[str, object]]]
    summary: NotRequired[str]
    description: NotRequired[str]


class Components(TypedDict, total=False):
    """Named parts that others refer to."""

    schemas: dict[str, Schema]


class Document(TypedDict):
    """An OpenAPI document, as far as it is changed here."""

    paths: dict[str, dict[str, OperationSchema]]
    components: NotRequired[Components]


FAILURE_SCHEMA: Schema = {
    "type": "object",
    "required": ["success", "error"],
    "properties": {
        "success": {"type": "boolean", "enum": [False]},
        "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "properties": {
                "code": {"type": "string", "description": "Stable, UPPER_SNAKE_CASE."},
                "message": {"type": "string", "description": "For people."},
                "details": {
                    "type": "object",
                    "additionalProperties": True,
                    "description": "`fields` maps the path of a field to its problem.",
                },
            },
        },
    },
}


def classes_without_description() -> list[type]:
    """Base classes whose docstrings describe no endpoint and no serializer that inherits them."""
    of_libraries: list[type] = get_lib_doc_excludes()  # type: ignore[no-untyped-call]
    return [*of_libraries, StrictSerializer]


def page_schema(rows: Schema) -> Schema:
    """The envelope of a list, paginated or not."""
    link: Schema = {"type": "string", "format": "uri", "nullable": True}
    return {
        "type": "object",
        "required": ["success", "data", "total_count", "next", "previous"],
        "properties": {
            "success": {"type": "boolean"},  # the hook below adds that it is always true
            "data": rows,
            "total_count": {
                "type": "integer",
                "nullable": True,
                "description": "Null if counting requires a scan; request it with count=true.",
            },
            "next": link,
            "previous": link,
        },
    }


def describe_envelope(result: Document, **_: object) -> Document:
    """A drf-spectacular postprocessing hook; name it last in POSTPROCESSING_HOOKS."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas[FAILURE] = FAILURE_SCHEMA
    for path, operation in _operations(result):
        _summarize(operation)
        responses = operation["responses"]
        if any(each["name"] == "If-None-Match" for each in operation.get("parameters", ())):
            responses["304"] = {"description": "Not modified."}
        for status, response in responses.items():
            _envelop(status, response, schemas)
        for status in _failures(path):
            responses.setdefault(status, _failure(MEANINGS[status]))
    return result


def _operations(result: Document) -> Iterator[tuple[str, OperationSchema]]:
    for path, methods in result["paths"].items():
        for method in METHODS:
            if method in methods and path.startswith("/api/v1/"):
                yield path, methods[method]


def _summarize(operation: OperationSchema) -> None:
    """Move the first paragraph of the description into the summary, which lists show."""
    first, _, others = operation.pop("description", "").partition("\n\n")
    if first:
        operation["summary"] = " ".join(first.split())
    if others:
        operation["description"] = others


def _envelop(status: str, response: ResponseSchema, schemas: dict[str, Schema]) -> None:
    if status.startswith(("4", "5")):
        response["content"] = _failure("")["content"]
        return
    for body in response.get("content", {}).values():
        schema = body.get("schema", {})
        if "success" not in _properties(schema, schemas):
            body["schema"] = _success(schema)
        _properties(body["schema"], schemas)["success"] = {"type": "boolean", "enum": [True]}


def _properties(schema: Schema, schemas: dict[str, Schema]) -> dict[str, Schema]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return (schemas.get(name, Schema()) if name else schema).get("properties", {})


def _success(schema: Schema) -> Schema:
    if schema.get("type") == "array":
        return page_schema(schema)
    return {
        "type": "object",
        "required": ["success", "data"],
        "properties": {"success": {"type": "boolean"}, "data": schema},
    }


def _failures(path: str) -> list[str]:
    return [status for status in MEANINGS if status != "404" or "{" in path]


def _failure(description: str) -> ResponseSchema:
    return {
        "description": description,
        "content": {JSON: {"schema": {"$ref": f"#/components/schemas/{FAILURE}"}}},
    }
