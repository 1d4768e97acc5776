"""At every bar: equity is what went in, what was earned and paid, and what is held at the close."""

import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backtest.market import run, walk
from trainops.kinds.backtest.result import trades_of

TERMS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "cash": st.sampled_from([300.0, 1000.0, 50_000.0]),
        "margin": st.sampled_from([1.0, 0.5, 0.1]),
        "maintenance_margin": st.sampled_from([0.0, 0.05]),
        "spread": st.sampled_from([0.0, 0.002]),
        "slippage": st.sampled_from([0.0, 0.001]),
        "fill": st.sampled_from(["next_open", "same_close"]),
        # An order pays fixed and minimum once for all trades that it closes: which of them bore it
        # cannot be computed from the trades. test_simulation.py has these.
        "commission": st.sampled_from([{}, {"relative": 0.001}, {"relative": 0.02}]),
        "sizing": st.fixed_dictionaries({"whole_units": st.booleans()}),
    }
)


def commission(terms, units, price):
    return np.abs(units) * price * terms.get("relative", 0.0)


def expected_equity(job, config):
    """Return each bar's equity, added up trade by trade from what the trades say."""
    closes = job.prices.closes()
    equity = np.full(len(closes), config["cash"])
    bars = np.arange(len(closes))
    # A same-close fill comes after the equity of its bar was written down.
    late = 1 if config["fill"] == "same_close" else 0

    def since(trade, bar, is_market):
        return bars >= trade[bar] + (late if is_market else 0)

    for trade in trades_of(job.broker.trades):
        paid = commission(config["commission"], trade["units"], trade["exit_price"])
        by_order = trade["reason"] == 0 and trade["exit_price"] == closes_at(job, trade, "exit")
        entered = since(trade, "entry_bar", trade["entry_price"] == closes_at(job, trade, "entry"))
        left = since(trade, "exit_bar", by_order)
        held = entered & ~left
        entry_paid = trade["commission"] - paid
        equity[held] += trade["units"] * (closes[held] - trade["entry_price"]) - entry_paid
        equity[left] += trade["profit"]
    for trade in job.broker.open_trades:
        held = since(trade, "entry_bar", trade["entry_price"] == closes_at(job, trade, "entry"))
        equity[held] += trade["units"] * (closes[held] - trade["entry_price"])
        equity[held] -= trade["entry_commission"]
    return equity


def closes_at(job, trade, side):
    """Return what a market order at the close of the trade's bar gets."""
    close = job.prices.closes()[trade[f"{side}_bar"]]
    is_buying = (trade["units"] > 0) == (side == "entry")
    away = job.config.spread / 2 + job.config.slippage
    return close * (1 + (away if is_buying else -away))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(terms=TERMS)
def test_cash_positions_and_equity_agree_at_every_bar(terms):
    with tempfile.TemporaryDirectory() as root:
        job = run(walk(120, seed=terms["seed"]), root, recipe="busy", **terms)
    equity = job.broker.equity.column("equity").numpy()
    expected = expected_equity(job, terms)
    np.testing.assert_allclose(equity, expected, rtol=1e-9, atol=1e-9 * terms["cash"])
    account = job.broker.account
    held = job.broker.open_trades
    spent = (held["units"] * held["entry_price"]).sum() + held["entry_commission"].sum()
    earned = trades_of(job.broker.trades)["profit"].sum()
    assert account["cash"] == pytest.approx(terms["cash"] + earned - spent, rel=1e-9, abs=1e-6)
    paid = trades_of(job.broker.trades)["commission"].sum() + held["entry_commission"].sum()
    assert account["commission"] == pytest.approx(paid, rel=1e-9, abs=1e-9)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(terms=TERMS)
def test_trades_are_of_whole_units_where_asked_and_end_after_they_began(terms):
    with tempfile.TemporaryDirectory() as root:
        job = run(walk(120, seed=terms["seed"]), root, recipe="busy", **terms)
    trades = trades_of(job.broker.trades)
    assert (trades["exit_bar"] >= trades["entry_bar"]).all()
    assert (trades["units"] != 0).all()
    if terms["sizing"]["whole_units"]:
        assert (trades["units"] == np.round(trades["units"])).all()
