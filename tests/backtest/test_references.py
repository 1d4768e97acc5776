"""Our trades and equity against those of backtesting.py, recorded and live."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.backtest.market import run, shipped_prices
from trainops.kinds.backtest import report
from trainops.kinds.backtest.result import result_of

REFERENCE = json.loads((Path(__file__).parent / "reference.json").read_text())
CASES = REFERENCE["cases"]
STATS = {  # ours -> theirs; those in percent are so there only
    "annual_return": "Return (Ann.) [%]",
    "volatility": "Volatility (Ann.) [%]",
    "cagr": "CAGR [%]",
    "sharpe": "Sharpe Ratio",
    "sortino": "Sortino Ratio",
    "calmar": "Calmar Ratio",
    "sqn": "SQN",
    "exposure": "Exposure Time [%]",
    "max_drawdown": "Max. Drawdown [%]",
    "average_drawdown": "Avg. Drawdown [%]",
    "beta": "Beta",
    "kelly": "Kelly Criterion",
    "win_rate": "Win Rate [%]",
    "best_trade": "Best Trade [%]",
    "worst_trade": "Worst Trade [%]",
    "average_trade": "Avg. Trade [%]",
    "expectancy_return": "Expectancy [%]",
    "return": "Return [%]",
    "peak_equity": "Equity Peak [$]",
}


def config_of(case):
    """Return the settings under which ours equals theirs; docs/backtest.md explains them."""
    broker, params = case["broker"], case["params"]
    commission = broker.get("commission", 0.0)
    fixed, relative = commission if isinstance(commission, list) else (0.0, commission)
    parameters = {"fast": params["n1"], "slow": params["n2"]}
    sizing = {"fixed_commission_for_each_unit": True}
    match case["strategy"]:
        case "SmaBracket":
            parameters |= {"stop_loss": params["slp"], "take_profit": params["tpp"]}
        case "SmaFixedSize":
            sizing = {"by": "units", "amount": float(params["sz"])}
        case "SmaLimitEntry":
            sizing = {"by": "units", "amount": 10.0}
            parameters |= {"entry": "limit", "entry_offset": params["off"], "stop_loss": 0.1}
        case "SmaStopEntry":
            sizing = {"by": "units", "amount": 10.0}
            parameters |= {"entry": "stop", "entry_offset": params["off"]}
        case "SmaLongFlat":
            parameters |= {"direction": "long"}
    return {
        "recipe": "sma_crossover",
        "parameters": parameters,
        "cash": float(broker["cash"]),
        "commission": {"relative": relative, "fixed": float(fixed)},
        "margin": broker.get("margin", 1.0),
        "fill": "same_close" if broker.get("trade_on_close") else "next_open",
        "sizing": sizing,
        "finish": "open",
    }


def trades_of(outcome):
    columns = (
        "units",
        "entry_bar",
        "exit_bar",
        "entry_price",
        "exit_price",
        "profit",
        "commission",
    )
    rows = [tuple(trade[name] for name in columns) for trade in outcome.trades]
    return np.array(sorted(rows, key=lambda row: row[1:3]))


@pytest.mark.parametrize("execution", ["vector", "event"])
@pytest.mark.parametrize("name", CASES)
def test_trades_and_equity_are_those_of_the_reference(name, execution, tmp_path):
    case = CASES[name]
    job = run(shipped_prices(case["data"]), tmp_path, **config_of(case), execution=execution)
    outcome = result_of(job.broker, job.config, job.step)
    expected = np.array(sorted(case["trades"], key=lambda trade: trade[1:3]))
    ours = trades_of(outcome)
    assert ours[:, :3].tolist() == expected[:, :3].tolist()  # size, entry bar, exit bar
    np.testing.assert_allclose(ours[:, 3:], expected[:, 3:], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(outcome.equity[::100], case["equity_every_100"], rtol=1e-9)
    assert job.result()["final_equity"] == pytest.approx(case["final_equity"], rel=1e-9)


def ends_of_days(prices, equity):
    """Return what backtesting.py computes returns from: without the first of intraday bars."""
    days = pd.Series(equity, prices.times.view("M8[us]")).resample("D").last()
    return days.dropna().to_numpy()


@pytest.mark.parametrize("name", CASES)
def test_the_report_agrees_with_the_reference(name, tmp_path, monkeypatch):
    case = CASES[name]
    if case["data"] == "EURUSD":  # hours: the difference that docs/backtest.md explains
        monkeypatch.setattr(report, "daily", ends_of_days)
    result = run(shipped_prices(case["data"]), tmp_path, **config_of(case)).result()
    for ours, theirs in STATS.items():
        factor = -100 if "Drawdown" in theirs else 100 if "%" in theirs else 1
        assert result[ours] * factor == pytest.approx(case["stats"][theirs], rel=1e-9), ours
    # Their alpha is against holding since the first bar after the indicators' warm-up.
    theirs = case["stats"]
    alpha = theirs["Alpha [%]"] + theirs["Beta"] * theirs["Buy & Hold Return [%]"]
    ours = result["alpha"] + result["beta"] * result["buy_and_hold_return"]
    assert 100 * ours == pytest.approx(alpha, rel=1e-9)


@pytest.fixture(scope="module")
def theirs():
    """The library itself, with the strategies that the reference was made with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import backtesting
        from backtesting.lib import crossover
    names = {
        "Strategy": backtesting.Strategy,
        "crossover": crossover,
        "SMA": lambda values, n: pd.Series(values).rolling(n).mean(),
    }
    for source in REFERENCE["strategies_source"].values():
        exec(source, names)  # noqa: S102 - what the reference says it was made with
    return backtesting.Backtest, names


LIVE = [  # what the recorded cases leave out
    ("SmaStopEntry", {"n1": 10, "n2": 20, "off": 0.01}, {"cash": 100_000, "commission": 0.002}),
    ("SmaLongFlat", {"n1": 50, "n2": 200}, {"cash": 10_000, "commission": 0.002}),
    ("SmaBracket", {"n1": 5, "n2": 9, "slp": 0.02, "tpp": 0.03},
     {"cash": 10_000, "commission": 0.001, "trade_on_close": True}),
    ("SmaCross", {"n1": 6, "n2": 25}, {"cash": 50_000, "margin": 0.5, "exclusive_orders": True}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("data", ["GOOG", "EURUSD"])
@pytest.mark.parametrize(("strategy", "params", "broker"), LIVE)
def test_ours_agrees_with_the_library_itself(strategy, params, broker, data, theirs, tmp_path):
    backtest, names = theirs
    frame = shipped_prices(data).to_pandas().set_index("time")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        stats = backtest(frame, names[strategy], finalize_trades=True, **broker).run(**params)
    case = {"strategy": strategy, "params": params, "broker": broker}
    job = run(shipped_prices(data), tmp_path, **config_of(case))
    outcome = result_of(job.broker, job.config, job.step)
    expected = sorted(
        stats["_trades"][["Size", "EntryBar", "ExitBar", "EntryPrice", "ExitPrice"]]
        .itertuples(index=False, name=None), key=lambda trade: trade[1:3]
    )  # fmt: skip
    np.testing.assert_allclose(trades_of(outcome)[:, :5], expected, rtol=1e-9)
    np.testing.assert_allclose(
        outcome.equity, stats["_equity_curve"]["Equity"].to_numpy(), rtol=1e-9
    )
