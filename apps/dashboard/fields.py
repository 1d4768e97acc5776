"""Form fields out of a JSON Schema, and a config out of what was typed. Pure; knows no Django.

A field's name is the dotted path of its value in the config, which is also how a ConfigError names
it: problems find their field by themselves.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainops.http.parsers import NotUsable, read_json

Schema = Mapping[str, Any]
COLUMN, COLUMNS = "column", "columns"
# Parameters of recipes with a dataset that name columns of it; a schema may also say so itself,
# by "format": "column" or "columns".
NAMES_OF_COLUMNS = {"target": COLUMN, "drop_columns": COLUMNS}
NOTHING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One input. `text` is what it shows: a str, a list of str (columns), or a bool (switch)."""

    path: str
    # text, number, integer, choice, switch, list, pairs, json, dataset, column, columns, model
    kind: str
    label: str
    description: str = ""
    group: str = ""
    required: bool = False
    nullable: bool = False
    default: Any = NOTHING
    choices: Sequence[str] = ()
    minimum: Any = None
    maximum: Any = None
    element: str = "string"  # of a list
    recipe: str = ""  # of a model: what must have trained it
    example: str = ""  # of pairs
    text: Any = ""
    error: str = ""
    is_basic: bool = False

    @property
    def id(self) -> str:
        return "f-" + self.path.replace(".", "-").replace("_", "-")

    @property
    def default_text(self) -> str:
        return "" if self.default in (NOTHING, None) else str(text_of(self.default))

    def with_value(self, value: Any) -> "Field":
        if self.kind == "pairs" and isinstance(value, Mapping):
            return replace(self, text=lines_of(value))
        is_structure = self.kind == "json" and value not in (NOTHING, None)
        return replace(self, text=json.dumps(value) if is_structure else text_of(value))

    def value(self, given: Sequence[str]) -> Any:
        """Return the value that the texts of a form mean; NOTHING for a blank one.

        A text that is no number stays a text: the config's own validation says so, by name.
        """
        if self.kind == "switch":
            return bool(given)
        if self.kind == COLUMNS:
            return [text for text in given if text]
        text = given[0].strip() if given else ""
        if not text:
            return None if self.nullable else NOTHING
        return PARSE.get(self.kind, _as_text)(text, self.element)


def text_of(value: Any) -> Any:
    """Return what a field shows for a value of a config."""
    if value is None or value is NOTHING:
        return ""
    if isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def lines_of(pairs: Mapping[str, Any]) -> str:
    """Return a mapping as `name: value`, one a line."""
    return "\n".join(f"{name}: {value}" for name, value in pairs.items())


def fields_of(schema: Schema, prefix: str = "", group: str = "") -> Iterator[Field]:
    """Yield a field for each leaf; models inside models become groups."""
    yield from _walk(schema, schema.get("$defs", {}), prefix, group)


def _walk(schema: Schema, models: Schema, prefix: str, group: str) -> Iterator[Field]:
    properties = schema.get("properties", {})
    formats = {_resolve(each, models)[0].get("format") for each in properties.values()}
    for name, given in properties.items():
        found, nullable = _resolve(given, models)
        path = prefix + name
        if "properties" in found:
            yield from _walk(found, models, f"{path}.", label_of(name))
            continue
        kind = _kind(found)
        if "dataset" in formats and kind in ("text", "list"):
            kind = NAMES_OF_COLUMNS.get(name, kind)
        yield Field(
            path=path,
            kind=kind,
            label=label_of(name),
            description=given.get("description", found.get("description", "")),
            group=group,
            required=name in schema.get("required", ()),
            nullable=nullable,
            default=given.get("default", NOTHING),
            choices=tuple(map(str, found.get("enum", ()))),
            minimum=found.get("minimum"),
            maximum=found.get("maximum"),
            element=found.get("items", {}).get("type", "string"),
            recipe=found.get("x-recipe", ""),
            example=lines_of(given["examples"][0])
            if kind == "pairs" and "examples" in given
            else "",
        )


def _resolve(schema: Schema, models: Schema) -> tuple[Schema, bool]:
    """Return the schema behind a reference or an optional, and whether null is allowed."""
    if "$ref" in schema:
        return models[schema["$ref"].rpartition("/")[2]], False
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        found, _ = _resolve(kinds[0], models)
        return found, len(kinds) < len(schema["anyOf"])
    return schema, False


def _kind(schema: Schema) -> str:
    if schema.get("format") in ("dataset", "model", COLUMN, COLUMNS):
        return str(schema["format"])
    if "enum" in schema:
        return "choice"
    if "$ref" in schema.get("items", {}):  # a list of models has no texts with commas
        return "json"
    if schema.get("additionalProperties") == {"type": "string"}:
        return "pairs"
    kinds = {"boolean": "switch", "array": "list", "object": "json"}
    kind = schema.get("type", "string")
    return kinds.get(kind, kind if kind in ("number", "integer") else "text")


def label_of(name: str) -> str:
    """Return e.g. "Every seconds" for every_seconds."""
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def at(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or NOTHING."""
    value: Any = config
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return NOTHING
        value = value[name]
    return value


def put(config: dict[str, Any], path: str, value: Any) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        config = config.setdefault(parent, {})
    config[name] = value


def _as_text(text: str, _element: str) -> Any:
    return text


def _as_integer(text: str, _element: str) -> Any:
    try:
        return int(text.replace(",", "").replace("_", ""))
    except ValueError:
        return _as_number(text, _element)


def _as_number(text: str, _element: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _as_list(text: str, element: str) -> Any:
    parse = PARSE.get(element, _as_text)
    return [parse(part.strip(), "") for part in text.split(",") if part.strip()]


def _as_json(text: str, _element: str) -> Any:
    try:
        return read_json(text)
    except NotUsable:
        return text


def _as_pairs(text: str, _element: str) -> Any:
    """Read `name: value`, one a line, or JSON. What is neither stays a text; so do names twice."""
    if text.startswith("{"):
        return _as_json(text, "")
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    pairs = {name.strip(): value.strip() for name, colon, value in lines if colon}
    return pairs if len(pairs) == len(lines) else text


PARSE = {
    "integer": _as_integer,
    "number": _as_number,
    "list": _as_list,
    "pairs": _as_pairs,
    "json": _as_json,
}
