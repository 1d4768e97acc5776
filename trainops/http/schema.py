"""Makes the OpenAPI document say what is true: every answer is in the envelope."""

from collections.abc import Iterator
from typing import Any

FAILURE = "Failure"
JSON = "application/json"
METHODS = ("get", "post", "put", "patch", "delete")
MEANINGS = {
    "400": "The input is wrong; `details.fields` says where and what is allowed.",
    "401": "Nobody is signed in, or the token is not valid.",
    "403": "The role does not suffice.",
    "404": "There is no such thing.",
    "default": "Any other failure.",
}
FAILURE_SCHEMA: dict[str, Any] = {
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
                    "description": "`fields` maps a field's path to what is wrong with it.",
                },
            },
        },
    },
}


def page_schema(rows: dict[str, Any]) -> dict[str, Any]:
    """The envelope of a list, paginated or not."""
    link = {"type": "string", "format": "uri", "nullable": True}
    return {
        "type": "object",
        "required": ["success", "data", "total_count", "next", "previous"],
        "properties": {
            "success": {"type": "boolean"},  # the hook below adds that it is always true
            "data": rows,
            "total_count": {
                "type": "integer",
                "nullable": True,
                "description": "Null where counting would cost a scan; ask with count=true.",
            },
            "next": link,
            "previous": link,
        },
    }


def describe_envelope(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A drf-spectacular postprocessing hook; name it last in POSTPROCESSING_HOOKS."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas[FAILURE] = FAILURE_SCHEMA
    for path, operation in _operations(result):
        responses = operation["responses"]
        for status, response in responses.items():
            _envelop(status, response, schemas)
        for status in _failures(path):
            responses.setdefault(status, _failure(MEANINGS[status]))
    return result


def _operations(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in result["paths"].items():
        for method in METHODS:
            if method in methods and path.startswith("/api/v1/"):
                yield path, methods[method]


def _envelop(status: str, response: dict[str, Any], schemas: dict[str, Any]) -> None:
    if status.startswith(("4", "5")):
        response["content"] = _failure("")["content"]
        return
    for body in response.get("content", {}).values():
        schema = body.get("schema", {})
        if "success" not in _properties(schema, schemas):
            body["schema"] = _success(schema)
        _properties(body["schema"], schemas)["success"] = {"type": "boolean", "enum": [True]}


def _properties(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = (schemas.get(name, {}) if name else schema).get("properties", {})
    return found


def _success(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") == "array":
        return page_schema(schema)
    return {
        "type": "object",
        "required": ["success", "data"],
        "properties": {"success": {"type": "boolean"}, "data": schema},
    }


def _failures(path: str) -> list[str]:
    return [status for status in MEANINGS if status != "404" or "{" in path]


def _failure(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {JSON: {"schema": {"$ref": f"#/components/schemas/{FAILURE}"}}},
    }
