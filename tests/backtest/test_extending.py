"""A finished backtest continues over newer bars, as if they had been there from the beginning."""

import pytest

from tests.backtest.market import BACKTEST, DATASET, make_job, run, run_through, walk, write
from trainops.process.forking import fork
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore, CheckpointType
from trainops.runtime.errors import ConfigError, IncompatibleState, InputError

SETTINGS = {
    "dataset": DATASET, "recipe": "sma_crossover", "parameters": {"stop_loss": 0.02},
    "commission": {"relative": 0.001},
}  # fmt: skip


def saved(table, root):
    """A checkpoint of a backtest after its last bar."""
    job = run(table, root, **SETTINGS)
    store = CheckpointStore(root / "one", identity={})
    return store.write(CheckpointType.FINAL, step=job.step, state=freeze(job.state_dict()))


def forked(checkpoint, table, root, **changes):
    (root / "newer").mkdir()
    inputs = write(table, root / "newer")
    before = BACKTEST.parse_config(SETTINGS)
    after = BACKTEST.parse_config(SETTINGS | changes)
    after.require_forkable(before)
    store = CheckpointStore(root / "other", identity={})
    made = fork(
        BACKTEST,
        source=Candidate(checkpoint.path, checkpoint.digest),
        before=before,
        after=after,
        inputs=inputs,
        store=store,
    )
    job = BACKTEST.make_job(after, inputs)
    job.load_state_dict(store.load(Candidate(made.path, made.digest)))
    return job


def test_it_ends_where_one_over_all_bars_ends(tmp_path):
    whole = run(walk(900), tmp_path, **SETTINGS)
    checkpoint = saved(walk(900).slice(0, 600), tmp_path)
    job = forked(checkpoint, walk(900), tmp_path)
    assert (job.step, job.total_steps) == (600, 900)
    while job.step < job.total_steps:
        job.advance()
    assert job.result() == whole.result()
    for part in ("equity", "trades"):
        one, other = job.state_dict()[part], whole.state_dict()[part]
        for name in one.columns:  # by bytes: prices that are not set are NaN
            assert one.column(name).numpy().tobytes() == other.column(name).numpy().tobytes()


def test_fewer_bars_are_refused(tmp_path):
    checkpoint = saved(walk(600), tmp_path)
    with pytest.raises(IncompatibleState, match="at bar 600 of 500"):
        forked(checkpoint, walk(600).slice(0, 500), tmp_path)


def test_other_terms_are_refused_by_name(tmp_path):
    checkpoint = saved(walk(600), tmp_path)
    with pytest.raises(ConfigError, match="a fork keeps"):
        forked(checkpoint, walk(900), tmp_path, cash=5.0)


def test_bars_that_were_altered_before_the_end_are_refused(tmp_path):
    checkpoint = saved(walk(900).slice(0, 600), tmp_path)
    table = walk(900)
    column = table.column("close").to_pylist()
    column[300] = (column[300] + table.column("low").to_pylist()[300]) / 2
    altered = table.set_column(table.column_names.index("close"), "close", [column])
    with pytest.raises(IncompatibleState, match="bars_digest"):
        forked(checkpoint, altered, tmp_path)


def test_a_later_last_day_continues_where_an_earlier_one_ended(tmp_path):
    """The day at which a backtest ends may differ in a fork; the one at which it begins may not."""
    table = walk(900)  # of hours: 37 days and a half
    job = run(table, tmp_path, **SETTINGS, start="2020-01-05", until="2020-01-20")
    assert job.total_steps == 15 * 24
    state = freeze(job.state_dict())
    longer = make_job(table, tmp_path, **SETTINGS, start="2020-01-05")
    longer.load_state_dict(state)
    whole = run(table, tmp_path, **SETTINGS, start="2020-01-05")
    assert run_through(longer).result() == whole.result()
    before, after = (
        BACKTEST.parse_config(SETTINGS | days)
        for days in ({"start": "2020-01-05"}, {"start": "2020-01-06", "until": "2020-01-20"})
    )
    with pytest.raises(ConfigError) as refused:
        after.require_forkable(before)
    assert list(refused.value.errors) == ["start"]


@pytest.mark.parametrize(
    ("days", "field"), [({"start": "2021-01-01"}, "start"), ({"until": "2019-01-01"}, "until")]
)
def test_days_without_a_bar_are_refused(tmp_path, days, field):
    with pytest.raises(InputError) as refused:
        make_job(walk(100), tmp_path, **SETTINGS, **days)
    assert "no bar is left" in refused.value.errors[field]
    with pytest.raises(ConfigError):
        BACKTEST.parse_config(SETTINGS | {"start": "2020-01-02", "until": "2020-01-02"})
