"""YAML as far as JSON goes: values that a request can carry, and the line that each stands on."""

import math
import re
from collections.abc import Iterator

import yaml

# Besides what the parser refuses: numbers of thousands of digits, nesting without an end.
UNREADABLE = (yaml.YAMLError, ValueError, RecursionError)


MAX_BITS = 64  # of a whole number
MAX_NODES = 20_000  # values and keys; each takes the time and memory of thousands of bytes


class _Loader(yaml.SafeLoader):
    """Plain values only, and no aliases: a few lines of them can fill any memory."""

    num_nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.num_nodes += 1
        if self.num_nodes > MAX_NODES:
            raise yaml.YAMLError(f"more than {MAX_NODES} values and keys")
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases (*) are not supported; write the value out", problem_mark=mark
            )
        return super().compose_node(parent, index)


# What a bare word means, as in YAML 1.2: PyYAML's own rules read `no` as false, 1:30 as 90, 010 as
# 8, 2024-01-31 as a date, and 1e-3 as text.
_WORDS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(0|[1-9]\d*|0x[0-9a-fA-F]+)", list("-+0123456789")),
    "float": (
        r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
}
_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in _WORDS.items():
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(rf"({_pattern})\Z"), _first
    )


def parsed(text: str) -> tuple[object, yaml.Node | None]:
    """Return the value and the node it was made of. Raises one of UNREADABLE."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), node
    finally:
        loader.dispose()


def lines_of(node: yaml.Node | None, path: str) -> Iterator[tuple[str, int]]:
    """Yield (dotted path, line) of every field. Raises YAMLError where one is given twice."""
    if isinstance(node, yaml.SequenceNode):
        pairs = [(str(index), each, each) for index, each in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        pairs = [(str(key.value), key, value) for key, value in node.value]
    else:
        return
    seen = set()
    for name, key, value in pairs:
        if name in seen:
            raise yaml.MarkedYAMLError(
                problem=f"{name} is given twice", problem_mark=key.start_mark
            )
        seen.add(name)
        inner = f"{path}.{name}" if path else name
        yield inner, key.start_mark.line + 1
        yield from lines_of(value, inner)


def unsendable(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, why) of everything that JSON cannot say: YAML knows more kinds of values."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield path, f"the name {key!r} is not a string; quote it"
            yield from unsendable(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from unsendable(inner, f"{path}.{index}")
    elif why := _why_not(value):
        yield path, why


def _why_not(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a usable number"
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        return "the text contains a lone surrogate"
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return f"a number of {value.bit_length()} bits is too large; allowed: {MAX_BITS} bits"
    if value is None or isinstance(value, str | int | float):
        return ""
    return f"a {type(value).__name__} cannot be used; allowed: text, numbers, true, false"


def reason(error: Exception) -> str:
    """Return what is wrong, without where."""
    return str(getattr(error, "problem", None) or error)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that another reader, or `parsed`, would not read as text."""


_Dumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
        *_Loader.yaml_implicit_resolvers.get(first, []),
    ]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
}


def dumped(value: object) -> str:
    """Return the YAML of JSON-safe values, in their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
