"""The circle: a model is trained on prices, and a backtest trades on what it learned."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.backtest.market import BACKTEST, DATASET, DAY, run_through, table_of, walk, write
from tests.thinning import quick_some
from trainops.kind import KINDS
from trainops.kinds.backtest.recipes.model import ModelParameters
from trainops.kinds.backtest.recipes.model_model import read_trained
from trainops.market.bars import Bars
from trainops.market.network import BATCH_BARS
from trainops.market.prices import Prices
from trainops.runtime.checkpoint.manifest import Candidate, read_manifest
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType
from trainops.runtime.errors import ConfigError, IncompatibleState, InputError

TRAINING = KINDS["training"]
MODEL = "op_training_20260101_000000_abcdef"
FEATURES = {
    "returns": [1, 3], "averages": [5], "rsi": [5], "bollinger": [5], "donchian": [5], "atr": [5],
    "macd": False,
}  # fmt: skip


def waves(num_bars):
    """Prices that rise for twenty bars and fall for twenty: there is something to learn."""
    rng = np.random.default_rng(3)
    close = 100 + 10 * np.sin(np.arange(num_bars) * np.pi / 20) + rng.normal(0, 0.3, num_bars)
    open_ = np.append(close[0], close[:-1])
    return table_of(open_, np.maximum(open_, close) + 0.2, np.minimum(open_, close) - 0.2, close)


def training(table, root, monitored=(), **parameters):
    given = {"dataset": DATASET, "horizon": 5, "features": FEATURES, "hidden_sizes": [8]}
    config = {
        "recipe": "price_direction", "parameters": given | parameters, "epochs": 6,
        "batch_size": 16, "learning_rate": 0.01, **dict(monitored),
    }  # fmt: skip
    return TRAINING.make_job(TRAINING.parse_config(config), write(table, root))


def trained(table, root, monitored=(), **parameters):
    """Return the final checkpoint of a training."""
    job = run_through(training(table, root, monitored, **parameters))
    store = CheckpointStore(root / "model", identity={})
    return store.write(CheckpointType.FINAL, step=job.step, state=freeze(job.state_dict()))


def backtest(table, root, model, *, settings=(), **parameters):
    config = {
        "recipe": "model", "dataset": DATASET, "parameters": {"operation": MODEL} | parameters,
        "commission": {"relative": 0.001}, **dict(settings),
    }  # fmt: skip
    return BACKTEST.make_job(BACKTEST.parse_config(config), write(table, root) | {MODEL: model})


def bits(job):
    state = job.state_dict()
    return [
        state[part].column(name).numpy().tobytes()
        for part in ("equity", "trades")
        for name in state[part].columns
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return trained(waves(600), tmp_path_factory.mktemp("trained")).path


def prices_of(table):
    column = {name: table.column(name).to_numpy() for name in table.column_names}
    times = column["time"].astype("M8[us]").astype(np.int64)
    bars = Bars(*(column[role].reshape(-1, 1) for role in ("open", "high", "low", "close")))
    return Prices(times, bars, np.empty((0, 1)), ("asset",), "UTC")


def scores(table, model):
    parameters = ModelParameters.parse({"operation": MODEL})
    return read_trained(parameters, {MODEL: model}).scores(prices_of(table))


def with_another_future(table, bar):
    other = walk(len(table), seed=9)
    return pa.concat_tables(
        [table.slice(0, bar), other.slice(bar).set_column(0, "time", table["time"].slice(bar))]
    )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_what_is_learned_is_traded_with_profit(tmp_path, model):
    job = run_through(backtest(waves(1000), tmp_path, model))
    result = job.result()
    assert result["trades"] > 5 and result["return"] > 0.3
    assert run_through(training(waves(600), tmp_path)).result()["final"]["val_accuracy"] > 0.8


@pytest.mark.slow
def test_nothing_that_comes_later_changes_a_score(model):
    table = waves(500)
    for bar in (60, 200, 499):
        altered = scores(with_another_future(table, bar), model)
        assert altered[:bar].tobytes() == scores(table, model)[:bar].tobytes()
    assert not np.isnan(scores(table, model)[60:]).any()


@pytest.mark.slow
def test_nothing_that_is_validated_on_is_learned_from(tmp_path):
    """Also not by a label that looks past the split, nor by a mean over all bars."""
    for parameters in ({}, {"label": "zigzag"}, {"features": FEATURES | {"fuzzy": "beside"}}):
        jobs = [
            training(table, tmp_path, **parameters)
            for table in (waves(600), with_another_future(waves(600), 480))
        ]
        one, other = (job.trainer.train for job in jobs)
        assert one.inputs[0].numpy().tobytes() == other.inputs[0].numpy().tobytes()
        assert one.targets.tolist() == other.targets.tolist()
        one, other = (dict(job.trainer.ingredients.constants) for job in jobs)
        del one["validated_until"], other["validated_until"]  # by when the last label was known
        assert one == other


@pytest.mark.slow
def test_it_continues_from_any_bar_with_the_same_trades(tmp_path, model):
    table = waves(300)
    settings = {"chunk_bars": 1}
    expected = run_through(backtest(table, tmp_path, model, settings=settings, bars="all"))
    assert len(expected.state_dict()["trades"]) > 4
    job = backtest(table, tmp_path, model, settings=settings, bars="all")
    while job.step < job.total_steps:
        job.advance()
        if job.step % 7 == 0:
            state = freeze(job.state_dict())
            job = backtest(table, tmp_path, model, settings=settings, bars="all")
            job.load_state_dict(state)
    assert bits(job) == bits(expected) and job.result() == expected.result()


def test_it_continues_over_newer_bars_exactly(tmp_path, model):
    first = run_through(backtest(waves(700), tmp_path, model))
    job = backtest(waves(900), tmp_path, model)
    job.load_state_dict(freeze(first.state_dict()))
    run_through(job)
    assert bits(job) == bits(run_through(backtest(waves(900), tmp_path, model)))


def test_a_score_does_not_depend_on_how_many_bars_are_judged_with_it(tmp_path):
    """A network may give other last bits to few rows than to the same rows among many."""
    path = trained(waves(300), tmp_path, hidden_sizes=[32, 16], task="regression").path
    many = scores(waves(BATCH_BARS + 3000), path)
    for more in (1, 2, 3, 7):
        few = scores(waves(BATCH_BARS + 3000).slice(0, BATCH_BARS + more), path)
        assert many[: len(few)].tobytes() == few.tobytes()


@pytest.mark.slow
def test_a_state_continues_with_the_model_that_it_was_made_with(tmp_path, model):
    state = freeze(run_through(backtest(waves(300), tmp_path, model, bars="all")).state_dict())
    other = trained(waves(600), tmp_path, hidden_sizes=[4]).path
    job = backtest(waves(300), tmp_path, other, bars="all")
    with pytest.raises(IncompatibleState, match="the strategy was made of"):
        job.load_state_dict(state)
    assert job.step == 0


def traded(table, root, model, **parameters):
    """Return the bars at which a backtest on a model enters trades."""
    return (
        run_through(backtest(table, root, model, **parameters))
        .state_dict()["trades"]
        .column("entry_bar")
    )


def test_bars_that_it_learned_from_or_was_selected_by_are_traded_only_on_request(tmp_path, model):
    assert traded(waves(800), tmp_path, model).min() > 600, "480 to 599 chose the best epoch"
    assert traded(waves(800), tmp_path, model, bars="all").min() < 100
    assert traded(waves(800), tmp_path, model, weights="last").min() > 600
    with pytest.raises(InputError, match=r"later bars; allowed: all, or .* validate_until or a te"):
        backtest(waves(600), tmp_path, model)


@pytest.mark.parametrize(
    "parameters",
    [
        {"test_fraction": 0.25, "validation_fraction": 0.25},
        {"train_until": "2020-01-13", "test_fraction": 0.25},
        {"train_until": "2020-01-13", "validate_until": "2020-01-19"},
    ],
    ids=["shares", "day and share", "days"],
)
def test_bars_after_the_validation_are_traded(tmp_path, parameters):
    path = trained(waves(600), tmp_path, **parameters).path
    end = 432 if "validate_until" in parameters else 450
    first = traded(waves(600), tmp_path, path).min()
    assert end < first < end + 40


def test_no_validation_label_looks_past_the_end_of_the_validation(tmp_path):
    """Else bars that a backtest trades would have chosen the weights."""
    given = {"test_fraction": 0.25, "validation_fraction": 0.25}
    for parameters in (given, given | {"label": "zigzag"}):
        jobs = [
            training(table, tmp_path, **parameters)
            for table in (waves(600), with_another_future(waves(600), 450))
        ]
        one, other = (job.trainer.validation for job in jobs)
        assert one.targets.tolist() == other.targets.tolist()
        assert one.inputs[0].numpy().tobytes() == other.inputs[0].numpy().tobytes()
        (until,) = {job.trainer.ingredients.constants["validated_until"] for job in jobs}
        assert prices_of(waves(600)).times[300] < until <= prices_of(waves(600)).times[450]
    assert len(training(waves(600), tmp_path, **given).trainer.validation) == 150 - 5


def test_a_model_of_an_earlier_version_trades_what_it_did_with_a_warning(tmp_path, caplog):
    job = run_through(training(waves(600), tmp_path, test_fraction=0.25))
    state = freeze(job.state_dict())
    del state["constants"]["validated_until"]
    store = CheckpointStore(tmp_path / "model", identity={})
    path = store.write(CheckpointType.FINAL, step=job.step, state=state).path
    assert traded(waves(600), tmp_path, path).min() in range(331, 370)  # 55 % are trained on
    assert "did not note the bars it was validated on" in caplog.text


def test_a_training_of_an_earlier_version_is_resumed_with_the_validation_it_began_with(tmp_path):
    job = training(waves(600), tmp_path, test_fraction=0.25)
    state = freeze(job.state_dict())
    del state["constants"]["validated_until"]
    job.load_state_dict(state)
    assert len(job.trainer.validation) == 120, "labels of the last 5 bars are later"
    assert "validated_until" not in job.state_dict()["constants"]


PARTS = {
    "best": "best_model",
    "last": "model",
    "best:val_accuracy": "best_model_val_accuracy",
    "best:train_loss": "best_model_train_loss",
}


def test_weights_by_each_monitored_metric_are_distinguished(tmp_path):
    monitored = {"monitors": {"val_accuracy": "max", "train_loss": "max"}}
    path = trained(walk(400), tmp_path, monitored).path
    digest = read_manifest(path).digest
    state = CheckpointStore(path.parent, identity={}).load(Candidate(path, digest))
    assert len({repr(state[part]) for part in PARTS.values()}) == 4
    for name, part in PARTS.items():
        parameters = ModelParameters.parse({"operation": MODEL, "weights": name})
        found = read_trained(parameters, {MODEL: path}).weights
        assert all(torch.equal(value, state[part][key]) for key, value in found.items())
    other = ModelParameters.parse({"operation": MODEL, "weights": "best:val_loss"})
    with pytest.raises(InputError, match=r"got best:val_loss; .* best:train_loss, best:val_acc"):
        read_trained(other, {MODEL: path})


def test_weights_that_name_no_metric_are_refused():
    for given in ("worst", "best:", "best:val loss", "Best"):
        with pytest.raises(ConfigError) as refused:
            ModelParameters.parse({"operation": MODEL, "weights": given})
        assert refused.value.errors == {
            "weights": f"got {given!r}; allowed: best, last, best:METRIC"
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    quick_some(
        [
            {"threshold": 0.02},
            {"task": "regression"},
            {"label": "zigzag", "reversal": 0.1},
            {"features": FEATURES | {"fuzzy": "instead", "macd": True}},
            {"train_until": "2020-01-12", "validate_until": "2020-01-20", "timezone": "Asia/Tokyo"},
            {"resample": "4h"},
        ],
        every=3,
    ),
    ids=lambda parameters: next(iter(parameters)),
)
def test_every_way_to_learn_can_be_traded(tmp_path, parameters):
    table = waves(1200)
    path = trained(table, tmp_path, **parameters).path
    settings = {"resample": parameters.get("resample")}
    job = run_through(backtest(table, tmp_path, path, settings=settings, bars="all"))
    assert job.result()["trades"] > 0


def test_several_symbols_are_learned_from_together(tmp_path):
    tables = [
        walk(300, seed=seed).append_column("symbol", pa.array([name] * 300))
        for seed, name in enumerate(("AA", "BB"))
    ]
    job = training(pa.concat_tables(tables), tmp_path)
    description = job.trainer.ingredients.description
    assert description["symbols"] == ["AA", "BB"]
    single = training(tables[0].drop_columns("symbol"), tmp_path).trainer.ingredients.description
    assert description["training_bars"] == 2 * single["training_bars"]


def test_days_split_where_they_begin_in_the_time_zone(tmp_path):
    job = training(waves(600), tmp_path, train_until="2020-01-15", timezone="Asia/Tokyo")
    assert job.trainer.ingredients.description["trained_until"] == "2020-01-14T15:00:00+00:00"


@pytest.mark.parametrize(
    ("parameters", "field", "message"),
    [
        ({"train_until": "2019-01-01"}, "train_until", "no bar is left for training"),
        ({"train_until": "2030-01-01"}, "train_until", "no bar is left for validation"),
        ({"horizon": 5000}, "validation_fraction", "no bar is left for training"),
        ({"symbols": ["AA"]}, "symbols", ""),
    ],
)
def test_too_few_bars_are_refused_by_name(tmp_path, parameters, field, message):
    if field == "symbols":
        table = waves(100).append_column("symbol", pa.array(["BB"] * 100))
    else:
        table = waves(100)
    with pytest.raises(InputError) as refused:
        training(table, tmp_path, **parameters)
    assert message in refused.value.errors[f"parameters.{field}"]


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"label": "zigzag", "task": "regression"}, "label"),
        ({"train_until": "2020-02-01", "validate_until": "2020-01-01"}, "validate_until"),
        ({"train_until": "soon"}, "train_until"),
        ({"test_fraction": 0.5, "validation_fraction": 0.5}, "test_fraction"),
        ({"features": {name: [] for name in FEATURES} | {"macd": False}}, "features"),
        ({"features": {"rsi": [1]}}, "features.rsi"),
        ({"features": {"returns": [0]}}, "features.returns.0"),
    ],
)
def test_what_cannot_be_learned_is_refused_at_submission(parameters, field):
    config = {"recipe": "price_direction", "parameters": {"dataset": DATASET} | parameters}
    with pytest.raises(ConfigError) as refused:
        TRAINING.parse_config(config)
    assert f"parameters.{field}" in refused.value.errors


def test_a_model_that_is_not_whole_or_of_other_bars_is_refused(tmp_path, model):
    with pytest.raises(InputError, match="was not given"):
        read_trained(ModelParameters.parse({"operation": MODEL}), {})
    daily = waves(700)
    times = daily["time"].to_pandas().iloc[0] + np.arange(700) * DAY
    daily = daily.set_column(0, "time", pa.array(times, pa.timestamp("us")))
    with pytest.raises(InputError, match=r"86400 s apart, those of the model 3600 s"):
        backtest(daily, tmp_path, model)
    broken = trained(waves(300), tmp_path).path
    (broken / "model.pt").write_bytes(b"x" * (broken / "model.pt").stat().st_size)
    with pytest.raises(InputError, match="is incomplete"):
        read_trained(ModelParameters.parse({"operation": MODEL}), {MODEL: broken})
