"""All requests of the HTTP API, from its OpenAPI document."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from trainops.documentation.kinds import type_of
from trainops.documentation.text import page as joined
from trainops.documentation.text import table

METHODS = ("get", "post", "put", "patch", "delete")


def page(source: Path) -> str:
    """Return the Markdown of all requests, by tag."""
    document = yaml.load(source.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    schemas = document["components"]["schemas"]
    by_tag = defaultdict(list)
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                by_tag[item[method].get("tags", ["other"])[0]].append((method, path, item[method]))
    sections = [
        part
        for tag, requests in sorted(by_tag.items())
        for part in (f"## {tag.capitalize()}", *_requests(requests, schemas))
    ]
    return joined(
        "# All HTTP requests",
        "Envelope, errors, tokens and paging: [HTTP API](../api.md). The same description for "
        "programs: [openapi.yaml](../openapi.yaml). The page *API* of a running trainops sends "
        "requests.",
        *sections,
    )


def _requests(
    requests: list[tuple[str, str, Mapping[str, Any]]], schemas: Mapping[str, Any]
) -> Iterator[str]:
    for method, path, request in requests:
        yield f"### {method.upper()} {path}"
        yield request.get("summary", "")
        yield _plain(request.get("description", ""))
        rows = [
            (
                f"`{each['name']}`",
                each["in"],
                _type(each.get("schema", {}), schemas),
                _plain(each.get("description", "")),
            )
            for each in request.get("parameters", [])
        ]
        yield table(("parameter", "in", "type", "description"), rows)
        yield table(("field of the body", "type", "description"), _body(request, schemas))
        yield f"Responses: {', '.join(f'`{each}`' for each in request['responses'])}."


def _body(request: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    content = request.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    for name, field in schema.get("properties", {}).items():
        yield f"`{name}`", _type(field, schemas), _plain(field.get("description", ""))


def _type(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    found = schema.get("$ref") or next((each["$ref"] for each in schema.get("allOf", [])), "")
    return type_of(schemas.get(found.rpartition("/")[2], schema), schemas)


def _plain(text: str) -> str:
    return text.replace("<", "\\<")
