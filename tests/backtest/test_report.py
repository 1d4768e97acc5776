"""The report's figures, on outcomes small enough to reckon by hand."""

import csv
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.backtest.market import bars_of, make_job, run, run_through, walk
from trainops.files.tables import write_csv
from trainops.kinds.backtest import tables
from trainops.kinds.backtest.core.book import CLOSED
from trainops.kinds.backtest.drivers import EventDriver
from trainops.kinds.backtest.periods import periods_per_year
from trainops.kinds.backtest.report import (
    against,
    drawdown,
    geometric_mean,
    histogram,
    risk,
    trading,
)
from trainops.kinds.backtest.strategy import EventStrategy
from trainops.market.bars import Bars
from trainops.market.prices import Prices
from trainops.text import FORMULAS

DAY = 86_400_000_000


def prices_at(days, timezone="UTC"):
    """Return prices of 100 at these days, or parts of days."""
    close = np.full((len(days), 1), 100.0)
    times = (np.asarray(days) * DAY).astype(np.int64)
    return Prices(times, Bars(close, close, close, close), np.empty((0, 1)), ("asset",), timezone)


def daily(table):
    times = pa.array([i * DAY for i in range(len(table))], pa.timestamp("us"))
    return table.set_column(0, "time", times)


@pytest.mark.parametrize("num_bars", [1, 2, 3, 300])
def test_a_report_is_json_whatever_happened(num_bars, tmp_path):
    result = run(walk(num_bars), tmp_path, recipe="sma_crossover").result()
    json.dumps(result, allow_nan=False)
    assert result["bars"] == num_bars
    assert len(result["curve"]) == min(num_bars, 500)


def test_what_was_lost_entirely_is_still_json(tmp_path):
    crash = bars_of((100, 101, 99, 100), (100, 101, 99, 100), (20, 21, 19, 20), (20, 21, 19, 20))
    result = run(crash, tmp_path, recipe="buy_and_hold", margin=0.25).result()
    json.dumps(result, allow_nan=False)
    assert result["liquidations"] == 1 and result["final_equity"] < 0


RATED_BY_RISK = ("volatility", "sharpe", "sortino", "calmar")


@pytest.mark.parametrize("last", [0.0, -500.0, 800.0])
def test_ruin_is_rated_below_every_loss(last):
    """It was rated 0.0, which a study took for better than a loss."""
    prices = prices_at(np.arange(6))
    ruined = risk(prices, np.array([1000, 700, 900, 0, last, last]))
    assert ruined["annual_return"] == -1 and not any(ruined[name] for name in RATED_BY_RISK)
    assert {ruined[name] for name in RATED_BY_RISK} == {None}
    losing = risk(prices, np.array([1000, 998, 999, 995, 996, 994.0]))
    assert -1 < losing["annual_return"] < 0 and None not in losing.values()


@pytest.mark.parametrize("timezone", ["UTC", "Asia/Tokyo"])
def test_the_first_day_of_intraday_bars_is_in_the_figures(timezone):
    """It gained 20 %, but the first end of a day was what returns were computed from."""
    prices = prices_at(np.arange(24 * 10) / 24, timezone)
    equity = np.append(np.linspace(1000, 1200, 12), np.full(24 * 10 - 12, 1200.0))
    days = 10 if timezone == "UTC" else 11
    found = risk(prices, equity)
    assert found["annual_return"] == pytest.approx(1.2 ** (365 / days) - 1)
    assert found["volatility"] > 0.5 and found["sharpe"] > 0.5
    loss = risk(prices, 2000 - equity)
    assert loss["annual_return"] < -0.9 and max(loss["sortino"], loss["calmar"]) < -0.5


def begins(months):
    """Return the first days of each span of months since 1970."""
    return np.arange(0, 40 * months, months).astype("M8[M]").astype("M8[D]").astype(int)


@pytest.mark.parametrize(
    ("days", "per_year"),
    [
        (np.arange(40), 365),
        (np.arange(60)[(np.arange(60) + 3) % 7 < 5], 252),
        (2 * np.arange(40), 182.6),
        (3 * np.arange(40), 121.75),
        (4 * np.arange(40), 91.3),
        (7 * np.arange(40), 52),
        (14 * np.arange(40), 26.1),
        (begins(1), 12),
        (begins(3), 4),
        (begins(6), 2),
        (begins(12), 1),
    ],
)
def test_a_year_has_as_many_bars_as_fit_into_it(days, per_year):
    prices = prices_at(days)
    assert periods_per_year(prices) == pytest.approx(per_year, rel=0.01)
    found = risk(prices, 1.01 ** np.arange(len(days)))
    assert found["annual_return"] == pytest.approx(1.01**per_year - 1, rel=0.02)


def test_a_day_of_one_bar_has_no_return():
    equity = np.array([1000, 1100, 1210.0])
    daily_bars = risk(prices_at(np.arange(3)), equity)
    assert daily_bars["annual_return"] == pytest.approx(1.1**365 - 1)
    one_day = risk(prices_at(np.arange(3) / 24), equity)
    assert one_day["annual_return"] == pytest.approx(1.21**252 - 1)


def test_the_average_of_trades_one_of_which_lost_all_is_undefined():
    trades = np.zeros(2, CLOSED)
    trades["profit"], trades["units"], trades["entry_price"] = [50, -120], [1, -1], 100
    assert trading(trades)["average_trade"] is None


def test_a_drawdown_lasts_until_the_peak_is_reached_again():
    times = np.arange(7) * DAY
    assert drawdown(times, np.array([1, 2, 1.5, 1, 1.9, 2, 3.0])) == (0.5, 0.5, 4.0)
    assert drawdown(times, np.array([1, 2, 3, 4, 5, 6, 7.0])) == (0.0, 0.0, 0.0)
    assert drawdown(times, np.array([4, 3, 2, 3, 3, 3, 3.0])) == (0.5, 0.5, 6.0)  # never again
    falls = np.array([2, 1, 2, 1.5, 3, 3, 2.7])  # by 50, 25 and 10 %, the last one just begun
    assert drawdown(times, falls) == pytest.approx((0.5, 0.85 / 3, 2.0))


def test_trades_are_counted_won_and_lost():
    trades = np.zeros(4, CLOSED)
    trades["profit"], trades["units"], trades["entry_price"] = (
        [30, -10, 10, -10],
        [1, -1, 1, 2],
        100,
    )
    trades["reason"] = [0, 1, 2, 1]
    found = trading(trades)
    assert found["trades"] == 4 and found["win_rate"] == 0.5
    assert found["profit_factor"] == 2.0 and found["expectancy"] == 5.0
    assert found["trades_by_reason"] == {
        "order": 1, "stop_loss": 2, "take_profit": 1, "liquidation": 0, "end": 0,
    }  # fmt: skip
    assert found["best_trade"] == 0.3 and found["worst_trade"] == -0.1
    assert found["kelly"] == 0.5 - 0.5 / (20 / 10)
    assert found["sqn"] == pytest.approx(2 * 5 / np.std([30, -10, 10, -10], ddof=1))


def test_a_strategy_that_holds_the_market_has_its_beta_and_no_alpha():
    market = np.exp(np.cumsum(np.random.default_rng(1).normal(0, 0.02, 50)))
    market /= market[0]
    held = against(market, 1000 * market, market[-1] - 1)
    assert held == {"alpha": pytest.approx(0, abs=1e-12), "beta": pytest.approx(1)}
    leveraged = against(market, 1000 * market**2, market[-1] ** 2 - 1)
    assert leveraged["beta"] == pytest.approx(2)
    assert leveraged["alpha"] == pytest.approx((market[-1] - 1) ** 2)


def test_alpha_and_beta_are_undefined_without_a_market_that_moves_or_with_a_debt():
    nothing = {"alpha": None, "beta": None}
    assert against(np.ones(5), np.arange(1.0, 6.0), 4.0) == nothing
    assert against(np.arange(1.0, 6.0), np.array([1, 2, -1, 1, 1.0]), 0.0) == nothing
    assert against(np.ones(2), np.ones(2), 0.0) == nothing


class TenthsAndFifths(EventStrategy):
    """Buys 0.1, buys 0.2 and sells 0.3 of a unit."""

    def on_bar(self, desk):
        if desk.bar < 3:
            desk.order((1, 1, -1)[desk.bar], (0.1, 0.2, 0.3)[desk.bar])


def test_remainders_of_rounding_are_in_no_figure(tmp_path):
    """Such a trade of 2.8e-17 units was open without limit, and lost 36,000,000,000,000,000 %."""
    job = make_job(walk(200), tmp_path, recipe="busy", commission={"minimum": 1.0})
    job.driver = EventDriver(TenthsAndFifths, is_same_close=False)
    result = run_through(job).result()
    assert result["trades"] == 2 and result["commission"] == 3.0
    assert result["exposure"] == 3 / 200
    assert -1 < result["worst_trade"] < 0


def test_no_trades_have_no_averages():
    found = trading(np.zeros(0, CLOSED))
    assert found["kelly"] is None
    assert found["trades"] == 0 and found["win_rate"] is None and found["profit_factor"] is None


@pytest.mark.parametrize("value", [0.0, -0.02, 3.0])
def test_returns_that_differ_by_rounding_have_a_histogram(value):
    found = histogram(np.array([value, np.nextafter(value, 10), value]))
    assert sum(found["counts"]) == 3 and len(found["edges"]) == len(found["counts"]) + 1


def test_a_mean_return_compounds_to_the_same():
    assert geometric_mean(np.array([0.1, 0.2])) == pytest.approx(math.sqrt(1.1 * 1.2) - 1)
    assert math.isnan(geometric_mean(np.array([0.5, -1.0])))
    assert geometric_mean(np.array([])) == 0.0


def test_years_and_months_multiply_to_the_whole_return(tmp_path):
    result = run(daily(walk(900)), tmp_path, recipe="ema_crossover").result()
    for periods in (result["years"], result["months"]):
        whole = np.prod([1 + each["return"] for each in periods]) - 1
        assert whole == pytest.approx(result["return"], rel=1e-9)
    assert [each["period"] for each in result["years"]] == ["1970", "1971", "1972"]
    assert result["months"][1]["period"] == "1970-02"


@pytest.mark.parametrize(
    ("finish", "price", "trades"), [("close", 104, 1), ("open", 102, 1), ("hold", 104, 0)]
)
def test_what_is_open_at_the_end_is_closed_as_the_config_says(finish, price, trades, tmp_path):
    table = bars_of((100, 101, 99, 100), (100, 101, 99, 100), (102, 105, 101, 104))
    job = run(table, tmp_path, recipe="buy_and_hold", finish=finish, cash=1000.0)
    result = job.result()
    assert result["final_equity"] == 1000 + 10 * (price - 100)
    assert result["trades"] == trades
    assert result["exposure"] == pytest.approx(2 / 3)
    assert job.result() == result, "a report leaves the books as they are"


def test_a_table_that_is_not_read_back_as_it_was_written_is_not_exported(tmp_path, monkeypatch):
    config = {"recipe": "sma_crossover", "parameters": {"fast": 2, "slow": 4}}
    job = run(walk(60), tmp_path, **config)
    for make in (tables.trades, tables.equity):
        write_csv(make(job), tmp_path / f"{make.__name__}.csv")
    whole = pd.DataFrame.to_csv
    monkeypatch.setattr(
        pd.DataFrame, "to_csv", lambda self, *args, **more: whole(self.round(2), *args, **more)
    )
    with pytest.raises(OSError, match="differs when read back"):
        write_csv(tables.equity(job), tmp_path / "rounded.csv")
    assert not (tmp_path / "rounded.csv").exists()


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_symbol_is_a_formula_in_a_table(tmp_path, begin):
    table = walk(120).append_column("symbol", pa.array([f"{begin}HYPERLINK(1)"] * 120))
    config = {"recipe": "sma_crossover", "parameters": {"fast": 2, "slow": 4}}
    job = run(table, tmp_path, symbols=[f"{begin}HYPERLINK(1)"], **config)
    write_csv(tables.trades(job), tmp_path / "trades.csv")
    write_csv(tables.equity(job), tmp_path / "equity.csv")
    with (tmp_path / "trades.csv").open(newline="") as text:
        rows = [*csv.DictReader(text)]
    assert rows and {row["symbol"] for row in rows} == {f"'{begin}HYPERLINK(1)".replace("\r", " ")}
    with (tmp_path / "equity.csv").open(newline="") as text:
        assert not [name for name in next(csv.reader(text)) if name.startswith(FORMULAS)]
