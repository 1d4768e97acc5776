"""The days that a backtest trades, by what is described of its dataset. Without torch."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

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
    first, last = (_day(str(time[end]), given["timezone"]) for end in ("min", "max"))
    day_range = f"the data has days from {first} to {last}"
    if given["start"] and given["start"] > last:
        raise ConfigError({"start": f"got {given['start']}; {day_range}"})
    if given["until"] and given["until"] <= first:
        raise ConfigError({"until": f"got {given['until']}; {day_range}"})
    until = given["until"] - timedelta(days=1) if given["until"] else last
    return max(given["start"] or first, first), min(until, last)


def _day(text: str, timezone: str) -> date:
    """Return the day of a time in a time zone; times without a zone are UTC."""
    time = datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    try:
        return time.astimezone(ZoneInfo(timezone)).date()
    except OverflowError:  # of the first or the last year that there is
        return time.date()
