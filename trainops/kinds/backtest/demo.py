"""A backtest on a random walk."""

from datetime import date, timedelta
from random import Random

from trainops.kind import Demo

NUM_BARS = 5_000
START = date(2005, 1, 3)
DEMO = Demo(
    name="Averages crossing on a random walk",
    config={
        "recipe": "sma_crossover",
        "parameters": {"fast": 10, "slow": 50},
        "commission": {"relative": 0.001},
    },
    table=lambda: prices(NUM_BARS),
)


def prices(num_bars: int) -> str:
    """Return daily bars of a random walk as CSV, the same ones each time."""
    draw = Random(0)
    rows, close = ["date,open,high,low,close"], 100.0
    for day in range(num_bars):
        opened, close = close, close * (1 + draw.gauss(0.0002, 0.01))
        high = max(opened, close) * (1 + abs(draw.gauss(0, 0.003)))
        low = min(opened, close) * (1 - abs(draw.gauss(0, 0.003)))
        shown = ",".join(f"{each:.4f}" for each in (opened, high, low, close))
        rows.append(f"{START + timedelta(days=day)},{shown}")
    return "\n".join(rows) + "\n"
