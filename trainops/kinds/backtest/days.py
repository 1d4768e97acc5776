"""The days that a backtest trades, by what is described of its dataset. Without torch."""

from datetime import date, datetime, timedelta

from trainops.market.columns import PriceColumns, find_columns
from trainops.runtime.columns import DescribedColumns
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import ConfigError


def days(config: OperationConfig, columns: DescribedColumns) -> tuple[date, date]:
    """Return the first and the last day that the config would trade. Raises ConfigError."""
    given = config.model_dump()
    described = columns.get(given["dataset"], [])
    types = {column["name"]: column["type"] for column in described}
    found, problems = find_columns(types, PriceColumns.parse(given["columns"]))
    if problems:
        raise ConfigError(problems)
    time = next(column for column in described if column["name"] == found["time"])
    if time["type"] != "datetime":
        problem = f"column {time['name']!r} holds {time['type']}; allowed for walk-forward: dates"
        raise ConfigError({"design.walk_forward": problem})
    first, last = (datetime.fromisoformat(str(time[end])).date() for end in ("min", "max"))
    until = given["until"] - timedelta(days=1) if given["until"] else last
    return given["start"] or first, until
