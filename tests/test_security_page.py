"""The table of limits in docs/security.md says what the code does."""

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "security.md"
ROW = re.compile(r"^\| [^|]+ \| (\d+) \| `([\w.]+)` \|", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text())


def test_there_are_rows():
    assert len(ROWS) >= 30


@pytest.mark.parametrize(("value", "path"), ROWS)
def test_each_figure_is_the_constant(value, path):
    assert float(value) == constant(path)


def constant(path):
    """Return what a dotted path names: in a module, or in something of it."""
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            module = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return reduce(value_of, parts[length:], module)
    raise LookupError(path)


def value_of(owner, name):
    fields = getattr(owner, "__dataclass_fields__", {})
    return fields[name].default if name in fields else getattr(owner, name)
