"""All fields of the config of a kind, from its JSON Schema."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainops.documentation.text import page as joined
from trainops.documentation.text import table
from trainops.kind import KINDS

Schema = Mapping[str, Any]
BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
}


def page(name: str) -> str:
    """Return the Markdown of one kind."""
    kind = KINDS[name]
    schema = kind.json_schema()
    rows = list(fields(schema, schema.get("$defs", {})))
    heading = ("field", "type", "default", "description")
    return joined(
        f"# {kind.label}",
        f"{kind.description}. The name of this kind is `{name}`; one step is one {kind.unit}.",
        table(heading, rows),
        "The fields of `parameters` depend on the recipe: `trainops recipes NAME` lists them.",
    )


def fields(schema: Schema, of: Mapping[str, Schema], path: str = "") -> Iterator[tuple[str, ...]]:
    """Yield path, type, default and description of each field, those of nested objects, too."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        inner = of.get(field.get("$ref", "").removeprefix("#/$defs/"), field)
        if "properties" in inner:
            yield from fields(inner, of, f"{path}{name}.")
            continue
        given = "required" if name in required else default(field.get("default"))
        description = field.get("description", inner.get("description", ""))
        yield f"`{path}{name}`", type_of(inner, of), given, description


def type_of(schema: Schema, of: Mapping[str, Schema]) -> str:
    """Return the allowed values in words."""
    schema = of.get(schema.get("$ref", "").removeprefix("#/$defs/"), schema)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            found = dict.fromkeys(type_of(each, of) for each in schema[several])
            return " or ".join(found)
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "items" in schema:
        return f"list of {type_of(schema['items'], of)}"
    bounds = [form.format(f"{schema[key]:g}") for key, form in BOUNDS.items() if key in schema]
    return " ".join([str(schema.get("type", "any")), ", ".join(bounds)]).strip()


def default(value: object) -> str:
    """Return a default as it is written in YAML."""
    if value in (None, "", [], {}):
        return "none"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"
