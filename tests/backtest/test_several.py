"""Several symbols in one portfolio."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from tests.backtest.market import (
    BACKTEST,
    DATASET,
    bars_of,
    make_job,
    run,
    run_through,
    walk,
    write,
)
from tests.thinning import quick_some
from trainops.kinds.backtest.drivers import EventDriver
from trainops.kinds.backtest.recipes.momentum_rotation import MomentumRotationParameters
from trainops.kinds.backtest.recipes.momentum_rotation_model import MomentumRotation
from trainops.kinds.backtest.result import trades_of
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import ConfigError, InputError

NAMES = ("A", "B", "C", "D")
ROTATION = {"recipe": "momentum_rotation", "cash": 50_000.0,
            "parameters": {"lookback": 10, "every": 5, "top": 2}}  # fmt: skip


def several(num_bars=200, *, names=NAMES):
    """Return a table in which the bars of each time stand together."""
    tables = [
        walk(num_bars, seed=seed).append_column("symbol", [[name] * num_bars])
        for seed, name in enumerate(names)
    ]
    return pa.concat_tables(tables).sort_by([("time", "ascending"), ("symbol", "descending")])


def test_symbols_are_read_in_the_order_of_their_names_or_as_wanted(tmp_path):
    job = make_job(several(), tmp_path, **ROTATION)
    assert job.prices.symbols == NAMES
    assert job.prices.closes(2).tolist() == walk(200, seed=2)["close"].to_pylist()
    job = make_job(several(), tmp_path, **ROTATION, symbols=["D", "B"])
    assert job.prices.symbols == ("D", "B")
    assert job.prices.closes(0).tolist() == walk(200, seed=3)["close"].to_pylist()


def test_only_times_that_all_symbols_have_are_bars(tmp_path):
    table = several(50, names="AB")
    without = table.filter(pa.array([i not in (4, 11, 12) for i in range(100)]))
    job = make_job(without, tmp_path, **ROTATION)
    assert len(job.prices) == 50 - 3  # B at the third bar, A at the sixth, B at the seventh
    assert job.prices.closes(0)[2] == walk(50, seed=0)["close"][3].as_py()
    apart = pa.concat_tables([table.slice(0, 2), table.slice(2, 1), table.slice(5, 1)])
    assert len(make_job(apart, tmp_path, **ROTATION).prices) == 1


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        (lambda t: t.filter(pa.array([i % 2 == (i // 2) % 2 for i in range(len(t))])),
         "dataset", "no common time of A, B"),
        (lambda t: t.set_column(5, "symbol", [["A"] * len(t)]),
         "dataset", "times repeat (time) in rows 3, 5, 7, 9, 11 and 15 more"),
        (lambda t: pa.concat_tables([t.slice(10), t.slice(0, 10)]),
         "dataset", "times are not ascending (time) in row 33"),
        (lambda t: t.set_column(5, "symbol", [[None, *["A"] * (len(t) - 1)]]),
         "dataset", "no symbol in row 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_several_symbols_is_reported(change, field, problem, tmp_path):
    with pytest.raises(InputError) as error:
        make_job(change(several(20, names="AB")), tmp_path, **ROTATION)
    assert problem in error.value.errors[field]


def test_a_symbol_that_there_is_not_is_reported(tmp_path):
    with pytest.raises(InputError, match="symbols: got X; allowed: A, B, C, D"):
        make_job(several(), tmp_path, **ROTATION, symbols=["A", "X"])
    with pytest.raises(ConfigError, match="each symbol once"):
        BACKTEST.parse_config({**ROTATION, "dataset": DATASET, "symbols": ["A", "A"]})


def test_a_strategy_for_one_symbol_asks_which(tmp_path):
    with pytest.raises(InputError, match="macd trades one symbol; allowed: one of A, B, C, D"):
        make_job(several(), tmp_path, recipe="macd")
    alone = run(several(), tmp_path, recipe="macd", symbols=["B"]).result()
    assert alone["trade_list"][0]["symbol"] == "B"
    assert (
        alone["final_equity"]
        == run(walk(200, seed=1), tmp_path, recipe="macd").result()["final_equity"]
    )


@pytest.mark.parametrize("fill", ["next_open", "same_close"])
@pytest.mark.parametrize("only_rising", [True, False])
def test_both_forms_of_a_rotation_give_the_same_bits(fill, only_rising, tmp_path):
    parameters = {"lookback": 7, "every": 3, "top": 2, "only_rising": only_rising}
    found = [
        run(several(), tmp_path, **{**ROTATION, "parameters": parameters}, fill=fill,
            execution=execution, commission={"relative": 0.001, "minimum": 1.0})
        for execution in ("vector", "event")
    ]  # fmt: skip
    one, other = ((trades_of(job.broker.trades), job.broker.equity.column("equity").numpy())
                  for job in found)  # fmt: skip
    assert len(one[0]) > 20
    assert one[0].tobytes() == other[0].tobytes() and one[1].tobytes() == other[1].tobytes()


def bits(job):
    equity = job.broker.equity.column("equity").numpy().tobytes()
    return equity, trades_of(job.broker.trades).tobytes(), job.state_dict()["state"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fill", "execution"),
    quick_some([*product(["next_open", "same_close"], ["vector", "event"])], every=3),
)
def test_a_portfolio_resumed_at_any_bar_ends_as_one_that_was_not(fill, execution, tmp_path):
    """Orders are sized by prices of this bar, never by those that a process happened to keep."""
    config = {
        "recipe": "momentum_rotation", "parameters": {"lookback": 4, "every": 3, "top": 2},
        "fill": fill, "execution": execution, "chunk_bars": 1,
        "commission": {"relative": 0.001},
    }  # fmt: skip
    whole, table = make_job(several(60), tmp_path, **config), several(60)
    states = []
    while whole.step < whole.total_steps:
        states.append(freeze(whole.state_dict()))
        whole.advance()
    assert len(trades_of(whole.broker.trades)) > 10
    for state in states:
        resumed = make_job(table, tmp_path, **config)
        resumed.load_state_dict(state)
        assert bits(run_through(resumed)) == bits(whole), resumed.step


class Looking(MomentumRotation):
    """Asks for everything before and after it decides."""

    def on_bar(self, desk):
        self.look(desk)
        super().on_bar(desk)
        self.look(desk)

    def look(self, desk):
        for symbol in range(len(desk.symbols)):
            of = desk.of(symbol)
            assert of.equity == desk.equity
            _ = (of.cash, of.position, of.trades, of.orders, of.closes, of.volume, of.time)


@pytest.mark.parametrize("fill", ["next_open", "same_close"])
def test_a_strategy_that_looks_at_its_account_trades_as_one_that_does_not(fill, tmp_path):
    config = {**ROTATION, "fill": fill, "execution": "event"}
    looking = make_job(several(), tmp_path, **config)
    looking.driver = EventDriver(
        lambda: Looking(MomentumRotationParameters.parse(config["parameters"])),
        is_same_close=fill == "same_close",
    )
    assert bits(run_through(looking)) == bits(run(several(), tmp_path, **config))


def test_a_fraction_at_a_close_is_of_the_equity_at_that_close(tmp_path):
    """A and B are bought for half of the equity each, at closes that only B has moved."""
    table = pa.concat_tables(
        [
            bars_of(*[(price, price, price, price) for price in closes]).append_column(
                "symbol", [[name] * len(closes)]
            )
            for name, closes in (("A", (100, 100, 100, 100, 101)), ("B", (1, 2, 2, 8, 10)))
        ]
    ).sort_by("time")
    job = run(table, tmp_path, recipe="momentum_rotation", fill="same_close", cash=1000.0,
              margin=0.5, parameters={"lookback": 1, "every": 1, "top": 2},
              finish="hold")  # fmt: skip
    # A leverage of 2 times a half: 1000 buy 500 B at 2, sold at 2, then 125 B at 8
    assert trades_of(job.broker.trades)["units"].tolist() == [500.0]
    assert [(int(t["symbol"]), float(t["units"])) for t in job.broker.open_trades] == [
        (1, 125.0),
        (0, 12.0),
    ]  # the equity is 1000 + 125 * 2 = 1250: that buys 12 A at 101


def test_a_rotation_holds_what_rose_most(tmp_path):
    job = run(several(), tmp_path, **ROTATION, finish="hold")
    closes = job.prices.bars.close
    trades = trades_of(job.broker.trades)
    assert set(trades["symbol"]) == {0, 1, 2, 3}
    for trade in trades:
        bar = trade["entry_bar"] - 1  # where it was decided
        assert bar >= 10 and (bar - 10) % 5 == 0
        rise = closes[bar] / closes[bar - 10]
        assert trade["symbol"] in np.argsort(-rise)[:2] and rise[trade["symbol"]] > 1


def test_the_equity_of_a_portfolio_is_cash_and_all_positions(tmp_path):
    job = make_job(several(), tmp_path, **ROTATION, chunk_bars=1)
    cash, closes = 50_000.0, job.prices.bars.close
    while job.step < job.total_steps:
        job.advance()
        state = job.state_dict()["state"]
        held = np.array([state["positions"][name] for name in NAMES])
        bar = job.step - 1
        assert state["equity"] == pytest.approx(state["cash"] + held @ closes[bar], rel=1e-12)
        cash = state["cash"]
    assert cash != 50_000.0


def test_a_report_compares_with_holding_all_symbols(tmp_path):
    result = run(several(), tmp_path, **ROTATION).result()
    closes = [walk(200, seed=seed)["close"] for seed in range(4)]
    held = np.mean([each[-1].as_py() / each[0].as_py() for each in closes]) - 1
    assert result["buy_and_hold_return"] == pytest.approx(held, rel=1e-12)
    assert {trade["symbol"] for trade in result["trade_list"]} <= set(NAMES)


def test_an_uploaded_table_without_symbols_is_one(tmp_path):
    write(walk(20), tmp_path)
    assert make_job(walk(20), tmp_path, **ROTATION, symbol="GOLD").prices.symbols == ("GOLD",)
