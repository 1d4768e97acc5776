"""Form fields out of a JSON Schema, and a config out of what was typed. Pure; knows no Django.

A field's name is the dotted path of its value in the config, which is also how a ConfigError names
it: problems find their field by themselves.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypedDict, cast

from trainops.http.parsers import NotUsable, read_json

Text: TypeAlias = str | bool | list[str]  # of a text field, a switch, or columns
Schema = TypedDict(  # JSON Schema, as Pydantic writes it
    "Schema",
    {
        "$defs": "dict[str, Schema]",
        "$ref": str,
        "anyOf": "list[Schema]",
        "properties": "dict[str, Schema]",
        "required": list[str],
        "additionalProperties": object,
        "items": "Schema",
        "type": str,
        "format": str,
        "enum": list[object],
        "minimum": float,
        "maximum": float,
        "default": object,
        "description": str,
        "examples": list[dict[str, object]],
        "x-recipe": str,
        "x-with": dict[str, list[str]],
        "allOf": "list[Schema]",
        "if": "Schema",
        "then": "Schema",
        "const": object,
    },
    total=False,
)
Chosen: TypeAlias = Callable[[str], object]
COLUMN, COLUMNS = "column", "columns"
# Parameters of recipes with a dataset that name columns of it; a schema may also say so itself,
# by "format": "column" or "columns".
NAMES_OF_COLUMNS = {"target": COLUMN, "drop_columns": COLUMNS}
NOTHING = object()
LABELS = {
    "atr": "ATR",
    "gae_lambda": "GAE lambda",
    "gpu_memory_gb": "GPU memory (GB)",
    "id": "ID",
    "least_seconds": "Minimum interval (s)",
    "macd": "MACD",
    "memory_gb": "Memory (GB)",
    "rsi": "RSI",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One input. `text` is what it shows: a str, a list of str (columns), or a bool (switch)."""

    path: str
    # text, number, integer, choice, switch, list, pairs, json, dataset, directory, column,
    # columns, model
    kind: str
    label: str
    description: str = ""
    group: str = ""
    required: bool = False
    nullable: bool = False
    default: object = NOTHING
    own_default: object = NOTHING  # where its group is given without it
    decides: bool = False  # which other fields there are
    decided_by: str = ""  # path of the choice without which it would not be there
    has_effect: bool = True  # with what is chosen; see `shown_with` of trainops.runtime.config
    choices: Sequence[str] = ()
    minimum: object = None
    maximum: object = None
    element: str = "string"  # of a list
    recipe: str = ""  # of a model: what must have trained it
    example: str = ""  # of pairs
    text: Text = ""
    error: str = ""
    is_basic: bool = False

    @property
    def id(self) -> str:
        return "f-" + self.path.replace(".", "-").replace("_", "-")

    @property
    def full_label(self) -> str:
        """The label where it stands apart from its group: it says whose it is."""
        own = self.label if self.label in LABELS.values() else self.label.lower()
        return f"{self.group}: {own}" if self.group else self.label

    @property
    def default_text(self) -> str:
        return "" if self.default in (NOTHING, None) else str(text_of(self.default))

    def with_value(self, value: object) -> "FormField":
        if self.kind == "pairs" and isinstance(value, Mapping):
            return replace(self, text=lines_of(value))
        is_structure = self.kind == "json" and value not in (NOTHING, None)
        return replace(self, text=json.dumps(value) if is_structure else text_of(value))

    def value(self, given: Sequence[str]) -> object:
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


def text_of(value: object) -> Text:
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


def lines_of(pairs: Mapping[str, object]) -> str:
    """Return a mapping as `name: value`, one a line."""
    return "\n".join(f"{name}: {value}" for name, value in pairs.items())


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema lies: the path before its fields, and what was chosen and given there."""

    prefix: str
    group: str
    chosen: Chosen
    given: Mapping[str, object] = field(default_factory=dict)  # defaults of the group as a whole
    decided_by: str = ""


def fields_of(
    json_schema: Mapping[str, object],
    prefix: str = "",
    group: str = "",
    chosen: Chosen = lambda _: NOTHING,
) -> Iterator[FormField]:
    """Yield a field for each leaf; models inside models become groups.

    `chosen` returns the value at a path of the config, or NOTHING: where a schema has fields for
    some values of a choice only (`if` and `then`), those of the chosen value are yielded.
    """
    schema = cast(Schema, json_schema)  # Pydantic returns dict[str, Any]
    yield from _walk(schema, schema.get("$defs", {}), _Place(prefix, group, chosen))


def _walk(schema: Schema, models: Mapping[str, Schema], place: _Place) -> Iterator[FormField]:
    conditions = {key for each in schema.get("allOf", ()) for key in each["if"]["properties"]}
    decided = _decided(schema, place)
    properties = {**schema.get("properties", {}), **decided}
    deciding = conditions.union(*(each.get("x-with", ()) for each in properties.values()))
    formats = {_resolve(each, models)[0].get("format") for each in properties.values()}
    for name, given in properties.items():
        found, nullable = _resolve(given, models)
        path = place.prefix + name
        own_default = given.get("default", NOTHING)
        default = place.given.get(name, own_default)
        if "properties" in found:
            inner = _Place(
                f"{path}.",
                place.group if name in decided else label_of(name),
                place.chosen,
                default if isinstance(default, Mapping) else {},
                place.prefix + next(iter(conditions)) if name in decided else place.decided_by,
            )
            yield from _walk(found, models, inner)
            continue
        kind = _kind(found)
        choice, values = next(iter(given.get("x-with", {}).items()), ("", []))
        decided_by = place.prefix + choice if choice else place.decided_by
        if "dataset" in formats and kind in ("text", "list"):
            kind = NAMES_OF_COLUMNS.get(name, kind)
        yield FormField(
            path=path,
            kind=kind,
            label=label_of(name),
            description=given.get("description", found.get("description", "")),
            group=place.group,
            required=name in schema.get("required", ()),
            nullable=nullable,
            default=default,
            own_default=own_default,
            decides=name in deciding,
            decided_by=decided_by,
            has_effect=not choice or _value_of(choice, schema, place) in values,
            choices=tuple(map(str, found.get("enum", ()))),
            minimum=found.get("minimum"),
            maximum=found.get("maximum"),
            element=found.get("items", {}).get("type", "string"),
            recipe=found.get("x-recipe", ""),
            example=lines_of(given["examples"][0])
            if kind == "pairs" and "examples" in given
            else "",
        )


def _decided(schema: Schema, place: _Place) -> dict[str, Schema]:
    """Return the properties that are there by the values of choices."""
    found: dict[str, Schema] = {}
    for each in schema.get("allOf", ()):
        for name, wanted in each["if"]["properties"].items():
            if _value_of(name, schema, place) == wanted["const"]:
                found |= each["then"]["properties"]
    return found


def _value_of(name: str, schema: Schema, place: _Place) -> object:
    """Return the chosen value of a field, else its default."""
    value = place.chosen(place.prefix + name)
    if value is NOTHING:
        return place.given.get(name, schema["properties"][name].get("default"))
    return value


def _resolve(schema: Schema, models: Mapping[str, Schema]) -> tuple[Schema, bool]:
    """Return the schema behind a reference or an optional, and whether null is allowed."""
    if "$ref" in schema:
        return models[schema["$ref"].rpartition("/")[2]], False
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        found, _ = _resolve(kinds[0], models)
        return found, len(kinds) < len(schema["anyOf"])
    return schema, False


def _kind(schema: Schema) -> str:
    if schema.get("format") in ("dataset", "directory", "model", COLUMN, COLUMNS):
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
    if name in LABELS:
        return LABELS[name]
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def at(config: Mapping[str, object], path: str) -> object:
    """Return the value at a dotted path, or NOTHING."""
    value: object = config
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return NOTHING
        value = value[name]
    return value


def put(config: dict[str, object], path: str, value: object) -> None:
    """Set the value at a dotted path."""
    *parents, name = path.split(".")
    for parent in parents:
        inner = config.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise TypeError(f"{path}: {parent} is no object")
        config = inner
    config[name] = value


def _as_text(text: str, _element: str) -> object:
    return text


def _as_integer(text: str, _element: str) -> object:
    try:
        return int(text.replace(",", "").replace("_", ""))
    except ValueError:
        return _as_number(text, _element)


def _as_number(text: str, _element: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _as_list(text: str, element: str) -> object:
    parse = PARSE.get(element, _as_text)
    return [parse(part.strip(), "") for part in text.split(",") if part.strip()]


def _as_json(text: str, _element: str) -> object:
    try:
        return read_json(text)
    except NotUsable:
        return text


def _as_pairs(text: str, _element: str) -> object:
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
