"""The report of a finished backtest as its page and its downloads show it. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from apps.operations.models import Operation

Result = Mapping[str, Any]
SHOWN_TRADES = 12
HEAT = ((0.05, 3), (0.02, 2), (0.0, 1))  # a month's return from here on -> how strong its colour
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WIDTH, HEIGHT = 960, 260  # of drawn curves, in units of their own


def panel(subject: Any) -> Mapping[str, Any] | None:
    """Return the context of the panel; None where there is no report."""
    result = of(subject.operation)
    return None if result is None else context(result)


def of(operation: Operation) -> Result | None:
    """Return what a completed backtest reported; None where there is no report."""
    return operation.result if "curve" in (operation.result or {}) else None


def context(result: Result) -> dict[str, Any]:
    """Return what the template report.html needs."""
    trades = result["trade_list"]
    return {
        "report": result,
        "years": years(result),
        "month_names": MONTHS,
        "bars": bars(result["trade_returns"]),
        "newest_trades": [_shown(trade) for trade in trades[::-1][:SHOWN_TRADES]],
        "symbol": result["symbols"][0],
        "has_several": len(result["symbols"]) > 1,
        "charts": charts(result),
    }


def _shown(trade: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **trade,
        "entered": moment(trade["entry_time"]),
        "left": moment(trade["exit_time"]),
        "why": trade["reason"].replace("_", " "),
    }


def moment(time: str) -> str:
    """Return the date, and the time of day where it is not midnight."""
    return time[:16].replace("T", " ").removesuffix(" 00:00")


def charts(result: Result) -> dict[str, Any]:
    """Return the columns that the curves are drawn from; times in seconds since 1970."""
    times, equity, drawdown, close = zip(*result["curve"], strict=True)
    marks = [
        {"time": seconds(trade[f"{what}_time"]), "price": trade[f"{what}_price"], "what": what,
         "is_long": trade["units"] > 0}
        for trade in result["trade_list"]
        if trade["symbol"] == result["symbols"][0]  # whose price is drawn
        for what in ("entry", "exit")
    ]  # fmt: skip
    return {
        "times": [seconds(each) for each in times],
        "equity": equity,
        "drawdown": [-each for each in drawdown],
        "close": close,
        "marks": marks,
    }


def years(result: Result) -> list[dict[str, Any]]:
    """Return a line for each year: its twelve months and itself, each with its colour."""
    months = {each["period"]: each["return"] for each in result["months"]}
    return [
        {
            "year": each["period"],
            "months": [
                _cell(months.get(f"{each['period']}-{number:02d}")) for number in range(1, 13)
            ],
            "whole": _cell(each["return"]),
        }
        for each in result["years"]
    ]


def _cell(share: float | None) -> dict[str, Any]:
    if not share:
        return {"share": share, "heat": ""}
    strength = next(strength for least, strength in HEAT if abs(share) >= least)
    return {"share": share, "heat": f"heat-{'up' if share >= 0 else 'down'}-{strength}"}


def bars(histogram: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Return the bars of the distribution of trade returns: places in a box of 100 by 100."""
    counts, edges = histogram["counts"], histogram["edges"]
    if not counts:
        return []
    width, highest = 100 / len(counts), max(counts)
    return [
        {
            "x": number * width,
            "width": width * 0.9,
            "height": 100 * count / highest,
            "y": 100 - 100 * count / highest,
            "count": int(count),
            "first": edges[number],
            "last": edges[number + 1],
            "is_gain": (edges[number] + edges[number + 1]) / 2 >= 0,
        }
        for number, count in enumerate(counts)
    ]


def line(values: Sequence[float], *, height: float = HEIGHT) -> str:
    """Return the points of an SVG line through evenly spaced values, from the lowest to the top."""
    low, high = min(values), max(values)
    scale, step = (high - low) or 1.0, WIDTH / max(1, len(values) - 1)
    return " ".join(
        f"{number * step:.1f},{height - height * (value - low) / scale:.1f}"
        for number, value in enumerate(values)
    )


def seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
