"""The job beside the contract: chunks, states that do not fit, what a strategy may remember."""

import copy

import pytest
import torch

from tests.backtest.market import make_job, run, run_through, walk, write
from trainops.kinds.backtest import drivers
from trainops.kinds.backtest.drivers import EventDriver
from trainops.kinds.backtest.result import trades_of
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import ConfigError, IncompatibleState, InputError, UnfreezableState

TABLE = walk(100)
SMA = {"recipe": "sma_crossover", "parameters": {"fast": 2, "slow": 4, "entry": "limit",
       "stop_loss": 0.05}}  # fmt: skip


def stopped(root, at=40, **config):
    job = make_job(TABLE, root, chunk_bars=10, **config)
    while job.step < at:
        job.advance()
    return job


def bits(job):
    equity = job.broker.equity.column("equity").numpy().tobytes()
    return equity, trades_of(job.broker.trades).tobytes(), job.state_dict()["state"]


@pytest.mark.parametrize("config", [SMA, {"recipe": "busy", "parameters": {"dice": False}}])
@pytest.mark.parametrize("chunk", [1, 7, 10, 64, 1000])
def test_the_length_of_chunks_changes_nothing(config, chunk, tmp_path):
    whole = run(TABLE, tmp_path, **config)
    assert bits(run(TABLE, tmp_path, **config, chunk_bars=chunk)) == bits(whole)


def test_a_run_that_stopped_in_one_chunk_length_continues_in_another(tmp_path):
    state = freeze(stopped(tmp_path, **SMA).state_dict())
    later = make_job(TABLE, tmp_path, chunk_bars=7, **SMA)
    later.load_state_dict(state)
    assert later.step == 40
    later.advance()
    assert later.step == 42, "safe points lie at multiples of the chunk"
    assert bits(run_through(later)) == bits(run(TABLE, tmp_path, **SMA))


def test_points_are_recorded_at_multiples_of_the_chunk_and_at_the_end(tmp_path):
    job, points = make_job(walk(25), tmp_path, chunk_bars=10, **SMA), {}
    while job.step < job.total_steps:
        metrics = job.advance()
        points[job.step] = metrics
    assert [step for step, metrics in points.items() if metrics] == [10, 20, 25]
    assert points[10].keys() == {"equity", "drawdown"}


def test_a_slow_strategy_comes_up_for_air_without_a_point(tmp_path, monkeypatch):
    monkeypatch.setattr(drivers, "PATIENCE_SECONDS", -1.0)
    job = make_job(TABLE, tmp_path, recipe="busy", parameters={"dice": False}, chunk_bars=50)
    seen = []
    while job.step < job.total_steps:
        metrics = job.advance()
        seen.append((job.step, bool(metrics)))
    assert seen[:4] == [(16, False), (32, False), (48, False), (50, True)]
    assert [step for step, is_point in seen if is_point] == [50, 100]
    monkeypatch.undo()
    assert bits(job) == bits(run(TABLE, tmp_path, recipe="busy", parameters={"dice": False}))


def test_the_summary_says_where_the_account_stands(tmp_path):
    job = make_job(TABLE, tmp_path, recipe="buy_and_hold", chunk_bars=10)
    assert job.state_dict()["state"]["current_date"] is None
    assert job.place == "before the first bar"
    job.advance()
    summary = job.state_dict()["state"]
    assert summary["bar_index"] == 10 and summary["current_date"].startswith("2020-01-01T09:00")
    assert summary["positions"].keys() == {"asset"} and summary["open_trades"] == 1
    close = job.prices.closes()[9]
    held = summary["positions"]["asset"] * close
    assert summary["equity"] == pytest.approx(summary["cash"] + held, rel=1e-12)


def changed(state, *path_and_value):
    *path, value = path_and_value
    found = copy.deepcopy(state)
    owner = found
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return found


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("state", "cash"), 1.0, "cash is 1.0, but by the rest of the state"),
        (("state", "last_close"), [1.0], "last_close is"),
        (("state",), [], "the state is"),
        (("broker", "account", "cash"), float("nan"), "cannot be read"),
        (("broker", "account", "next_id"), 1.0, "cannot be read"),
        (("broker", "account", "num_orders"), 7, "orders or trades differ"),
        (("broker", "account"), {}, "cannot be read"),
        (("broker", "trades", "symbol"), torch.tensor([3]), "different lengths|of a symbol"),
        (("broker", "orders", "limit"), torch.zeros(1, dtype=torch.int64), "cannot be read"),
        (("equity",), 1, "not the streams"),
        (("strategy",), {"a": 1}, "no identity and memory"),
        (("strategy", "identity"), {"model": "another"}, "the strategy was made of"),
        (("strategy", "remembered"), {"a": 1}, "has no state"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(path, value, problem, tmp_path):
    state = freeze(stopped(tmp_path, **SMA).state_dict())
    job = make_job(TABLE, tmp_path, chunk_bars=10, **SMA)
    before = bits(job)
    with pytest.raises(IncompatibleState, match=problem):
        job.load_state_dict(changed(state, *path, value))
    assert bits(job) == before


def test_a_state_of_other_prices_is_refused(tmp_path):
    state = freeze(stopped(tmp_path, **SMA).state_dict())
    job = make_job(walk(100, seed=9), tmp_path, **SMA)
    with pytest.raises(IncompatibleState, match=r"last_close is .* and the prices"):
        job.load_state_dict(state)


def test_a_state_of_more_bars_than_there_are_is_refused(tmp_path):
    state = freeze(stopped(tmp_path, **SMA).state_dict())
    job = make_job(TABLE.slice(0, 30), tmp_path, **SMA)
    with pytest.raises(IncompatibleState, match="the state is at bar 40 of 30"):
        job.load_state_dict(state)


def test_a_strategy_with_other_memories_is_refused(tmp_path):
    busy = {"recipe": "busy", "parameters": {"dice": False}}
    state = freeze(stopped(tmp_path, **busy).state_dict())
    job = make_job(TABLE, tmp_path, **busy)
    saved = state["strategy"]
    remembered = saved["remembered"]
    for wrong in (
        {},
        {**saved, "identity": {"model": "another"}},
        {**saved, "remembered": {**remembered, "more": 1}},
        {**saved, "remembered": {**remembered, "average": torch.zeros(3)}},
    ):
        with pytest.raises(IncompatibleState, match="strategy"):
            job.load_state_dict({**state, "strategy": wrong})
    assert job.step == 0
    job.load_state_dict(state)
    assert bits(run_through(job)) == bits(run(TABLE, tmp_path, **busy))


def test_a_finished_backtest_continues_over_newer_bars_exactly(tmp_path):
    """What is open at the end is closed in the report only."""
    first = run(TABLE.slice(0, 60), tmp_path, **SMA)
    first.result()
    later = make_job(TABLE, tmp_path, **SMA)
    later.load_state_dict(freeze(first.state_dict()))
    assert later.step == 60
    assert bits(run_through(later)) == bits(run(TABLE, tmp_path, **SMA))


def test_what_cannot_be_saved_is_refused_before_the_first_bar(tmp_path):
    with pytest.raises(UnfreezableState, match=r"Busy.function is a builtin_function"):
        make_job(TABLE, tmp_path, recipe="busy", parameters={"remember_a_function": True})


def test_a_form_that_a_strategy_does_not_have_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="busy does not support it; allowed: auto, event"):
        make_job(TABLE, tmp_path, recipe="busy", execution="vector")
    job = make_job(TABLE, tmp_path, recipe="busy")
    assert isinstance(job.driver, EventDriver)


def test_a_dataset_that_was_not_handed_over_is_refused(tmp_path):
    write(TABLE, tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        make_job(TABLE, tmp_path, **SMA, dataset="ds_ffffffffffffffff")
