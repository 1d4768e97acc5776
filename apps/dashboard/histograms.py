"""The distribution of a column's numbers as bars of a drawing."""

from dataclasses import dataclass

from apps.dashboard.formatting import number, plural
from apps.datasets.tables.rows import ColumnRow

BAR, HEIGHT = 4, 28  # width of a bar with its gap, and the height of the highest, in units
GAP = 0.5
LEAST = 1.0  # height of a bar with at least one number


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle, and which numbers it counts."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class HistogramBars:
    """All bars; `text` says what they show."""

    width: int
    height: int
    bars: list[Bar]
    text: str


def bars(column: ColumnRow) -> HistogramBars:
    """Return a bar for each bin with numbers, of a column that has a histogram."""
    histogram = column["histogram"]
    counts, width = histogram["counts"], histogram["width"]
    most = max(counts)
    edges = [histogram["start"] + width * place for place in range(len(counts) + 1)]
    last = 1 if column["type"] == "integer" else 0  # such bins end before their right edge

    def between(first: int, end: int) -> str:
        low, high = number(edges[first]), number(edges[end] - last)
        return low if low == high else f"{low} to {high}"

    found = []
    for place, count in enumerate(counts):
        if not count:
            continue
        height = max(LEAST, HEIGHT * count / most)
        text = f"{between(place, place + 1)}: {plural(count, 'row')}"
        found.append(Bar(place * BAR, HEIGHT - height, BAR - GAP, height, text))
    highest = counts.index(most)
    fullest = between(highest, highest + 1)
    where = f"{'from' if ' to ' in fullest else 'at'} {fullest}"
    return HistogramBars(
        width=BAR * len(counts),
        height=HEIGHT,
        bars=found,
        text=f"{plural(len(counts), 'bin')} from {between(0, len(counts))}; "
        f"most rows: {plural(most, 'row')} {where}",
    )
