"""The engine against a broker that was written from the documented rules alone."""

import random
import tempfile
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.backtest.market import run, walk
from tests.backtest.rule import give_orders, random_target
from tests.backtest.simulation import Bar, Calendar, Simulation, Terms
from tests.engines.drawing import fields, search
from trainops.kinds.backtest import tables
from trainops.kinds.backtest.config import BacktestConfig
from trainops.runtime.errors import InputError

NAMES = ("A", "B", "C")
# Every term of the broker, and what is drawn of it.
DRAWN = {
    "cash": [1000.0, 20_000.0, 1e6],
    "commission.relative": [0.0, 0.001],
    "commission.fixed": [0.0, 0.7],
    "commission.minimum": [0.0, 2.0],
    "spread": [0.0, 0.002],
    "slippage": [0.0, 0.0015],
    "margin": [1.0, 0.5, 0.1],
    "maintenance_margin": [0.0, 0.08],
    "fill": ["next_open", "same_close"],
    "sizing.by": ["fraction", "units"],
    "sizing.amount": [1.0, 0.3],
    "sizing.whole_units": [False, True],
    "sizing.fixed_commission_for_each_unit": [False, True],
    "finish": ["close", "open", "hold"],
}
CALENDAR = {  # which bars are traded; days are counted from the first bar's
    "timezone": ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"],
    "start": [None, None, 1],
    "until": [None, None, 2, 3],
    "resample": [None, None, "1min", "5min", "15min", "30min", "1h", "4h", "1d", "1w"],
}
MARKET = {
    "symbols": [1, 2, 3],
    "bars": [1, 2, 60, 90, 240],
    # Nights in which clocks are changed, of Berlin and of New York, are among these.
    "first": ["2020-01-01", "2020-03-27 13:10", "2020-10-24", "2020-03-07", "2020-10-31 05:00"],
    "minutes": [10, 30, 60],  # between two bars
    "volatility": [0.004, 0.02, 0.06],
    "rule": ["orders", "targets"],
    "execution": ["auto", "event"],
    "activity": [0.1, 0.5],
    "units": [0.1, 1.0, 30.0],
}
NOT_OF_THE_BROKER = {  # they say what is traded, when, and how the run is kept
    "seed", "device", "threads", "deterministic", "exact", "checkpoint", "restart", "limits",
    "resources", "recipe", "parameters", "dataset", "columns", "symbol", "symbols", "execution",
    "chunk_bars", "monitor", "mode",
}  # fmt: skip
DAYS = ("start", "until")
COLUMNS = ("units", "entry_price", "exit_price", "commission", "profit")


def draw(number):
    rng = random.Random(number)  # noqa: S311
    return {name: rng.choice(values) for name, values in (DRAWN | CALENDAR | MARKET).items()}


def day(drawn, name):
    """Return the first day that is traded, or that is not traded any more; None: no limit."""
    if drawn[name] is None:
        return None
    return (datetime.fromisoformat(drawn["first"]) + timedelta(days=drawn[name])).date()


def times_of(drawn):
    first = datetime.fromisoformat(drawn["first"]).replace(tzinfo=UTC)
    return [first + n * timedelta(minutes=drawn["minutes"]) for n in range(drawn["bars"])]


def table_of(drawn, seed):
    times = pa.array([each.replace(tzinfo=None) for each in times_of(drawn)], pa.timestamp("us"))
    tables_ = [
        walk(drawn["bars"], seed=seed + 7 * number, volatility=drawn["volatility"])
        .set_column(0, "time", times)
        .append_column("symbol", [[NAMES[number]] * drawn["bars"]])
        for number in range(drawn["symbols"])
    ]  # fmt: skip
    return pa.concat_tables(tables_).sort_by([("time", "ascending"), ("symbol", "ascending")])


def ours(drawn, table, seed, root):
    config = {"recipe": "random_orders", "execution": drawn["execution"], "parameters":
              {"chance": seed, "activity": drawn["activity"], "units": drawn["units"],
               "rule": drawn["rule"]}}  # fmt: skip
    for path in DRAWN:
        owner, _, name = path.rpartition(".")
        (config.setdefault(owner, {}) if owner else config)[name] = drawn[path]
    config |= {"timezone": drawn["timezone"], "resample": drawn["resample"]}
    config |= {name: given and str(given) for name in DAYS for given in [day(drawn, name)]}
    return run(table, root, **config)


def theirs(drawn, table, seed):
    columns = {
        name: table[name].to_numpy().reshape(-1, drawn["symbols"]).tolist()
        for name in ("open", "high", "low", "close")
    }
    bars = [Bar(*each) for each in zip(*columns.values(), strict=True)]
    days = {name: day(drawn, name) for name in DAYS}
    calendar = Calendar(drawn["timezone"], resample=drawn["resample"], **days)
    bars = calendar.bars(times_of(drawn), bars)
    if not bars:
        return None
    simulation = Simulation(
        Terms(**{
            {"by": "size_by", "amount": "size"}.get(name, name): drawn[path]
            for path in DRAWN for name in [path.rpartition(".")[2]]
        }),
        bars,
    )  # fmt: skip
    placed = []

    def decide(desk):
        if drawn["rule"] == "targets":
            activity = drawn["activity"]
            target, terms = random_target(desk.bar, desk.close, desk.symbol, seed, activity)
            if target is not None:
                desk.switch(target, **terms)
        else:
            give_orders(desk, seed, drawn["activity"], drawn["units"], placed)

    return simulation.run(decide)


def require_equal(drawn, seed):
    """Equal to nine digits: sums are added up in another order. None where no bar is traded."""
    table = table_of(drawn, seed)
    expected = theirs(drawn, table, seed)
    with tempfile.TemporaryDirectory() as root:
        if expected is None:
            with pytest.raises(InputError, match="no bar is left"):
                ours(drawn, table, seed, root)
            return None
        job = ours(drawn, table, seed, root)
    closed, equity, held_since = expected.finish()
    trades, result = tables.trades(job), job.result()
    expected_rows = [(NAMES[t.symbol], t.entry_bar, t.exit_bar, t.reason) for t in closed]
    rows = list(
        trades[["symbol", "entry_bar", "exit_bar", "reason"]].itertuples(index=False, name=None)
    )
    assert rows == expected_rows
    scale = 1e-9 * max(map(abs, [*equity, drawn["cash"]]))
    for name in COLUMNS:
        np.testing.assert_allclose(
            trades[name], [getattr(t, name) for t in closed], rtol=1e-8, atol=scale, err_msg=name
        )
    np.testing.assert_allclose(tables.equity(job)["equity"], equity, rtol=1e-9, atol=scale)
    assert (result["refused_orders"], result["liquidations"]) == (
        expected.refused, expected.liquidations,
    )  # fmt: skip
    in_market = [
        any(t.entry_bar <= bar <= t.exit_bar for t in closed) or any(b <= bar for b in held_since)
        for bar in range(len(equity))
    ]
    assert result["exposure"] == pytest.approx(np.mean(in_market))
    assert (trades["exit_bar"] >= trades["entry_bar"]).all()
    return trades, expected


def test_every_term_of_the_broker_is_simulated():
    terms = {
        path
        for path, _ in fields(BacktestConfig)
        if path.partition(".")[0] not in NOT_OF_THE_BROKER
    }
    assert terms == DRAWN.keys() | CALENDAR.keys()


@pytest.mark.parametrize("number", range(0, 200, 25))
def test_a_drawn_backtest_is_simulated(number):
    require_equal(draw(number), seed=number)


@pytest.mark.slow
def test_the_engine_does_what_the_page_says():
    """What is drawn reaches every rule: each reason to close, refusals and liquidations."""
    seen, refused, liquidated = set(), 0, 0
    traded, empty = set(), 0
    for number in range(200):
        drawn = draw(number)
        if (found := require_equal(drawn, seed=number)) is None:
            empty += 1
            continue
        trades, expected = found
        seen |= set(trades["reason"])
        traded |= {(name, drawn[name]) for name in CALENDAR if len(trades)}
        refused += expected.refused
        liquidated += expected.liquidations
    assert traded == {(name, value) for name, values in CALENDAR.items() for value in values}
    assert empty
    assert seen == {"order", "stop_loss", "take_profit", "liquidation", "end"}
    assert refused > 50 and liquidated > 3


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_a_search_finds_no_difference():
    space = st.fixed_dictionaries(
        {name: st.sampled_from(values) for name, values in (DRAWN | CALENDAR | MARKET).items()}
    )
    search(require_equal, drawn=space, seed=st.integers(0, 1_000_000))
