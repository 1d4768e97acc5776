"""Which column of a table is which price, by names and types: the web process asks, too."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, WithJsonSchema

from trainops.runtime.config import Strict

USUAL = {
    "time": ("time", "date", "datetime", "timestamp", "opentime", "ts", "bartime", "localtime"),
    "open": ("open", "o", "openprice", "bidopen"),
    "high": ("high", "h", "highprice", "bidhigh"),
    "low": ("low", "l", "lowprice", "bidlow"),
    "close": ("close", "c", "closeprice", "last", "bidclose"),
    "symbol": ("symbol", "ticker", "instrument", "pair"),
    "volume": ("volume", "vol", "v", "tickvolume", "basevolume"),
}
PRICES = ("open", "high", "low", "close")
NUMBERS = ("number", "integer")
NAMES = ("category", "text")
TIMES = ("datetime", "integer", "category", "text")  # text: may be dates that mix zones


ALLOWED = {"time": (TIMES, "dates"), "symbol": (NAMES, "names")}  # others: numbers

ColumnName = Annotated[str, WithJsonSchema({"type": "string", "format": "column"})]


class PriceColumns(Strict):
    """The columns of a price series, where they are not called by one of the usual names."""

    time: ColumnName | None = Field(None, description="Start time or day of a bar.")
    open: ColumnName | None = None
    high: ColumnName | None = None
    low: ColumnName | None = None
    close: ColumnName | None = None
    volume: ColumnName | None = None
    symbol: ColumnName | None = Field(
        None, description="Symbol of a bar, in a table of several symbols."
    )


def find_columns(
    kinds: Mapping[str, str], named: PriceColumns
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the column of each role, and by field what is wrong.

    `kinds` has the type of every column: number, integer, datetime, boolean, category or text.
    """
    found: dict[str, str] = {}
    problems: dict[str, str] = {}
    by_usual_name = {_plain(name): name for name in reversed(list(kinds))}
    for role, usual in USUAL.items():
        wanted = getattr(named, role)
        if wanted is not None and wanted not in kinds:
            problems[f"columns.{role}"] = f"got {wanted!r}; not in the dataset; {_listed(kinds)}"
        name = wanted or next(
            (by_usual_name[each] for each in usual if each in by_usual_name), None
        )
        if name is None and role == "time":
            name = _only_datetime(kinds)
        if name is not None and name in kinds:
            found[role] = name
    if missing := [role for role in ("time", *PRICES) if role not in found and not problems]:
        problems["dataset"] = f"no column for {', '.join(missing)} was found; {_listed(kinds)}"
    return found, problems | _wrong_types(found, kinds)


def _wrong_types(found: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, str]:
    problems = {}
    for role, name in found.items():
        allowed, wanted = ALLOWED.get(role, (NUMBERS, "numbers"))
        if kinds[name] not in allowed:
            problems["dataset"] = f"column {name!r} ({role}) holds {kinds[name]}, not {wanted}"
    return problems


def _only_datetime(kinds: Mapping[str, str]) -> str | None:
    """An index that was exported without a name is recognised where it is the only date."""
    dates = [name for name, kind in kinds.items() if kind == "datetime"]
    return dates[0] if len(dates) == 1 else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _listed(kinds: Mapping[str, str]) -> str:
    return f"its columns: {', '.join(list(kinds)[:50])}"
