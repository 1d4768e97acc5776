"""The contract on drawn configs: stopped, killed or looked at, a backtest ends the same.

Every field of the schema is drawn. In each run of the suite every two values of two fields meet in
some config; `test_a_search_finds_no_difference` runs for the configured time.
"""

import random
import tempfile
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.backtest.market import walk
from tests.engines.contract import DrawnCase, make_dirty, require_drawn
from tests.engines.drawing import LEFT_OUT, Space, search
from tests.thinning import quick_some
from trainops.kind import KINDS
from trainops.kinds.backtest import tables
from trainops.kinds.backtest.config import BacktestConfig
from trainops.kinds.backtest.result import trades_of
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze

ONE, SEVERAL = "ds_000000000000000a", "ds_000000000000000b"
BARS, DAY_ONE = 60, date(2020, 1, 1)  # of hours
NAMES, OTHER_NAMES = ("A", "B", "C"), ("Y", "X", "Z")
ENTRY = {"entry": "stop", "entry_offset": 0.004, "stop_loss": 0.02, "take_profit": 0.03}
PARAMETERS = {  # of each recipe
    "random_orders": [
        {"activity": 0.4, "units": 0.3},
        {"activity": 0.2, "dice": True, "looks": True},
        {"activity": 0.3, "rule": "targets"},
        {"activity": 0.1, "units": 5.0, "chance": 3},
    ],
    "momentum_rotation": [
        {"lookback": 3, "every": 2, "top": 2},
        {"lookback": 2, "every": 1, "top": 2, "only_rising": False},
    ],
    "donchian_breakout": [
        {"period": 4, "exit_period": 2},
        {"period": 3, "exit_period": 2, **ENTRY},
    ],
    "busy": [{}, {"dice": False}],
}
FOR_SEVERAL = ("random_orders", "momentum_rotation")
HAS_BOTH = ("momentum_rotation", "donchian_breakout")
VALUES = {
    "seed": [0, 9],
    "device": ["auto", "cpu"],
    "threads": [1, 2],
    "checkpoint.every_steps": [None, 5],
    "checkpoint.every_seconds": [300.0, 1e-6],
    "checkpoint.least_seconds": [0.0, 1.0],
    "checkpoint.keep_last": [1, 3],
    "checkpoint.keep_best": [0, 1],
    "checkpoint.every_bars": [1, 7, 10_000],
    "restart.max_restarts": [0, 3],
    "limits.cancel_timeout_seconds": [60.0, 5.0],
    "limits.stall_timeout_seconds": [1800.0, 30.0],
    "limits.max_duration_seconds": [None, 600.0],
    "limits.max_duration": [None, "10m"],
    "resources.gpu_memory_gb": [None, 1.0],
    "resources.memory_gb": [None, 1.0],
    "recipe": list(PARAMETERS),
    "parameters": [0, 1, 2, 3],  # which of the recipe's
    "dataset": [ONE, SEVERAL],
    **{f"columns.{name}": [LEFT_OUT, f"{name}2"] for name in
       ("time", "open", "high", "low", "close", "volume", "symbol")},
    "symbol": [LEFT_OUT, "GOLD"],
    "symbols": [(), (2,), (2, 0, 1)],  # which of the table's
    "timezone": ["UTC", "Europe/Berlin", "America/New_York"],
    "start": [None, str(DAY_ONE + timedelta(days=1))],
    "until": [None, str(DAY_ONE + timedelta(days=2))],
    "resample": [None, "30min", "4h", "1d"],
    "cash": [1000.0, 20_000.0, 1e6],
    "commission.relative": [0.0, 0.001],
    "commission.fixed": [0.0, 0.7],
    "commission.minimum": [0.0, 2.0],
    "spread": [0.0, 0.002],
    "slippage": [0.0, 0.0015],
    "margin": [1.0, 0.5, 0.1],
    "maintenance_margin": [0.0, 0.08],
    "sizing.amount": [1.0, 0.3],
    "chunk_bars": [None, 1, 7],
}  # fmt: skip
WITHOUT_EFFECT = (  # on trades and equity
    "chunk_bars", "device", "threads", "deterministic", "exact", "monitor", "mode", "checkpoint",
    "restart", "limits", "resources",
)  # fmt: skip


def has_both_forms(recipe, parameters):
    return recipe in HAS_BOTH or parameters.get("rule") == "targets"


def settled(drawn):
    """Give a recipe its own parameters, and a table its own symbols; see the config's `parse`."""
    drawn = dict(drawn)
    recipe, number = drawn["recipe"], drawn["parameters"]
    drawn["parameters"] = parameters = PARAMETERS[recipe][number % len(PARAMETERS[recipe])]
    if drawn["device"] == "cpu":
        drawn["resources.gpu_memory_gb"] = None
    names = NAMES if drawn["columns.symbol"] is LEFT_OUT else OTHER_NAMES
    if drawn["dataset"] == ONE:
        names = () if names is NAMES else names[:1]
    chosen = [names[i] for i in drawn["symbols"] if i < len(names)]
    if recipe not in FOR_SEVERAL and len(chosen or names) > 1:
        chosen = [names[-1]]
    drawn["symbols"] = chosen
    if drawn["execution"] == "vector" and not has_both_forms(recipe, parameters):
        drawn["execution"] = "auto"
    return drawn


SPACE = Space(BacktestConfig, VALUES, settled)
PAIRWISE = SPACE.pairwise(together=("recipe", "dataset", "fill", "sizing.by"))


def table(config, chance):
    """Return bars with all columns twice: under their usual names, and others beside them."""
    parts = []
    for number in range(3 if config["dataset"] == SEVERAL else 1):
        bars = walk(BARS, seed=chance + number, volatility=0.02)
        o, h, low, c = (bars[name].to_numpy() for name in ("open", "high", "low", "close"))
        shifted = pa.compute.add(bars["time"], pa.scalar(timedelta(minutes=17)))
        more = {
            "volume": o, "time2": shifted, "open2": (o + c) / 2, "high2": h * 1.01,
            "low2": low * 0.99, "close2": (3 * c + o) / 4, "volume2": c,
            "symbol2": [OTHER_NAMES[number]] * BARS,
        }  # fmt: skip
        if config["dataset"] == SEVERAL:
            more["symbol"] = [NAMES[number]] * BARS
        for name, column in more.items():
            bars = bars.append_column(name, column if name == "time2" else [column])
        parts.append(bars)
    return pa.concat_tables(parts).sort_by([("time", "ascending")])


@pytest.fixture(autouse=True)
def _settings_again():
    yield
    reproducibility.set_determinism(deterministic=True, threads=1)


def require_contract(config, chance):
    with tempfile.TemporaryDirectory() as root:
        case = DrawnCase("backtest", "drawn", config, (), lambda: table(config, chance))
        require_drawn(case, Path(root), random.Random(chance))  # noqa: S311
        states = []
        expected = bits_of(case, config, Path(root), look=lambda job: states.append(saved(job)))
        for state in states:
            assert bits_of(case, config, Path(root), state=state) == expected, len(state["equity"])
        assert bits_of(case, config, Path(root), look=look) == expected
        for other in changed(config, chance):
            assert bits_of(case, other, Path(root)) == expected, other


def changed(config, chance):
    """Return configs that may trade no differently: other intervals, the other form, one looks."""
    rng = random.Random(chance)  # noqa: S311
    other = rng.choice(PAIRWISE)
    yield {**config, **{name: other[name] for name in WITHOUT_EFFECT}}
    if has_both_forms(config["recipe"], config["parameters"]):
        yield {**config, "execution": "vector" if config["execution"] == "event" else "event"}
    if config["recipe"] == "random_orders":
        looks = not config["parameters"].get("looks", False)
        yield {**config, "parameters": {**config["parameters"], "looks": looks}}


def saved(job):
    return {**freeze(job.state_dict()), "random": reproducibility.state_dict()}


def bits_of(case, config, root, *, look=lambda job: None, state=None):
    """Return the bits of every trade and every bar's equity, and the report.

    `look` is called at every safe point; `state` is what to continue from.
    """
    make_dirty()
    engine = KINDS["backtest"]
    parsed = engine.parse_config({"seed": 7, **config})
    reproducibility.seed_all(parsed.seed)
    job = engine.make_job(parsed, case.inputs(root))
    if state is not None:
        job.load_state_dict({name: part for name, part in state.items() if name != "random"})
        reproducibility.load_state_dict(state["random"])
    while job.step < job.total_steps:
        look(job)
        job.advance()
    report = {name: value for name, value in job.result().items() if name != "execution"}
    equity = job.broker.equity.column("equity").numpy().tobytes()
    return equity, trades_of(job.broker.trades).tobytes(), repr(report)


def look(job):
    job.state_dict()
    job.broker.value()
    if job.step:
        tables.trades(job)
        tables.equity(job)


def test_every_field_is_varied():
    assert SPACE.unvaried(PAIRWISE) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", quick_some(range(len(PAIRWISE)), every=16))
def test_a_drawn_backtest_ends_where_an_undisturbed_one_does(number):
    require_contract(PAIRWISE[number], chance=number)


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_a_search_finds_no_difference():
    search(require_contract, config=SPACE.configs(), chance=st.integers(0, 100_000))
