"""A rule gives the same trades as signals over the series and as decisions bar by bar."""

import tempfile

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backtest.market import run, walk
from tests.thinning import quick_some
from trainops.kinds.backtest.result import trades_of

PARAMETERS = {
    "buy_and_hold": {},
    "sma_crossover": {"fast": 2, "slow": 5},
    "ema_crossover": {"fast": 2, "slow": 5},
    "rsi_reversion": {"period": 4, "oversold": 40.0, "overbought": 60.0},
    "bollinger": {"period": 5, "width": 1.0},
    "donchian_breakout": {"period": 5, "exit_period": 3},
    "macd": {"fast": 2, "slow": 5, "signal": 3},
}
ENTRIES = st.fixed_dictionaries(
    {
        "direction": st.sampled_from(["both", "long"]),
        "entry": st.sampled_from(["market", "limit", "stop"]),
        "entry_offset": st.just(0.005),
        "stop_loss": st.sampled_from([None, 0.02]),
        "take_profit": st.sampled_from([None, 0.03]),
    }
)


def bits(job):
    return job.broker.equity.column("equity").numpy().tobytes(), trades_of(
        job.broker.trades
    ).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", quick_some(PARAMETERS, every=3))
@settings(max_examples=15, deadline=None)
@given(
    entries=ENTRIES,
    seed=st.integers(0, 1000),
    fill=st.sampled_from(["next_open", "same_close"]),
    chunk=st.sampled_from([1, 7, None]),
)
def test_both_forms_give_the_same_bits(recipe, entries, seed, fill, chunk):
    parameters = {**PARAMETERS[recipe], **entries}
    with tempfile.TemporaryDirectory() as root:
        found = [
            run(walk(150, seed=seed), root, recipe=recipe, parameters=parameters, fill=fill,
                commission={"relative": 0.001}, execution=execution, chunk_bars=chunk_bars)
            for execution, chunk_bars in (("vector", None), ("event", chunk))
        ]  # fmt: skip
    assert bits(found[0]) == bits(found[1])


@pytest.mark.parametrize("recipe", PARAMETERS)
def test_every_built_in_strategy_trades(recipe, tmp_path):
    job = run(walk(400), tmp_path, recipe=recipe, parameters=PARAMETERS[recipe])
    assert job.result()["trades"] >= (1 if recipe == "buy_and_hold" else 10)


@pytest.mark.parametrize("recipe", [*PARAMETERS, "busy"])
def test_nothing_looks_ahead(recipe, tmp_path):
    """Another future changes nothing in the past."""
    table, other = walk(200, seed=1), walk(200, seed=2)
    mixed = pa.concat_tables([table.slice(0, 120), other.slice(120)])
    found = []
    for number, each in enumerate((table, mixed)):
        root = tmp_path / str(number)
        root.mkdir()
        job = run(each, root, recipe=recipe, parameters=PARAMETERS.get(recipe, {}), finish="hold")
        trades = trades_of(job.broker.trades)
        past = trades[trades["exit_bar"] < 120].tobytes()
        found.append((job.broker.equity.column("equity").numpy()[:120].tobytes(), past))
    assert found[0] == found[1]
