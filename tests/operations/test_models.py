"""A backtest on the model of a training: through the services, with real children."""

import csv
import io

import pyarrow.parquet as pq
import pytest

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.operations.models import ModelUse
from apps.operations.requests import deletion, forking, services
from tests.api.conftest import signed_in
from tests.backtest import market
from tests.backtest.market import walk
from tests.backtest.test_model import FEATURES, waves
from tests.operations.attempts import run
from tests.operations.rows import submitted
from trainops.errors import DomainError
from trainops.runtime.errors import ConfigError

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("in_process")]


@pytest.fixture
def compiled(tmp_path_factory):
    """Have numba's machine code on the disk: nobody renews the lease of a child that compiles."""
    market.run(walk(30), tmp_path_factory.mktemp("compiled"), recipe="sma_crossover")


def uploaded(num_bars, person):
    file = io.BytesIO()
    pq.write_table(waves(num_bars), file)
    file.seek(0)
    return datasets.add_table(file=file, filename=f"{num_bars}.parquet", owner=person).pk


def training(dataset, person, **changes):
    parameters = {
        "dataset": dataset, "features": FEATURES, "hidden_sizes": [8], "horizon": 5,
        "test_fraction": 0.2,
    }  # fmt: skip
    config = {"recipe": "price_direction", "parameters": parameters, "epochs": 3} | changes
    return services.submit(kind="training", config=config, owner=person)


def backtest(dataset, model, person):
    config = {"recipe": "model", "dataset": dataset, "parameters": {"operation": model}}
    return services.submit(kind="backtest", config=config, owner=person)


def require_whole_tables(ended):
    """The downloads of a backtest have every trade and every bar, to the last bit."""
    client = signed_in("vera", "viewer").client

    def rows(table):
        answer = client.get(f"/operations/{ended.pk}/report.{table}.csv")
        return list(csv.DictReader(io.StringIO(answer.getvalue().decode())))

    trades, listed = rows("trades"), ended.result["trade_list"]
    assert len(trades) == len(listed) == ended.result["trades"]
    for row, trade in zip(trades, listed, strict=True):
        assert float(row["profit"]) == trade["profit"] and row["reason"] == trade["reason"]
        assert row["entry_time"] == trade["entry_time"] and row["symbol"] == trade["symbol"]
    equity = rows("equity")
    assert len(equity) == ended.step
    known = {row["time"]: row for row in equity}
    for time, value, drawdown, close in ended.result["curve"]:
        row = known[time]
        assert (float(row["equity"]), float(row["close"])) == (value, close)
        assert float(row["drawdown"]) == drawdown


@pytest.mark.slow
def test_what_was_trained_is_backtested_and_kept_as_long_as_it_is_needed(runtime, person, compiled):
    prices = uploaded(700, person)
    trained = run(runtime, training(prices, person))
    assert trained.state == "COMPLETED", trained.error
    waiting = backtest(prices, trained.pk, person)
    for forbidden in (deletion.delete, deletion.delete_checkpoints):
        with pytest.raises(DomainError) as refused:
            forbidden(operation_id=trained.pk, actor=person)
        assert refused.value.code == "MODEL_IN_USE" and waiting.pk in refused.value.message

    ended = run(runtime, waiting)

    assert ended.state == "COMPLETED", ended.error
    assert ended.result["trades"] > 0
    require_whole_tables(ended)
    newer = uploaded(900, person)
    extended = run(
        runtime, forking.fork(operation_id=ended.pk, owner=person, config={"dataset": newer})
    )
    assert extended.state == "COMPLETED" and extended.step == 900
    straight = run(runtime, backtest(newer, trained.pk, person))
    assert straight.result == extended.result
    deletion.delete(operation_id=trained.pk, actor=person)
    assert not ModelUse.objects.exists()
    with pytest.raises(ConfigError, match="does not exist"):
        backtest(prices, trained.pk, person)


@pytest.mark.slow
def test_a_model_whose_bytes_were_changed_is_not_traded(runtime, person):
    prices = uploaded(600, person)
    trained = run(runtime, training(prices, person))
    final = Checkpoint.objects.get(operation=trained)
    waiting = backtest(prices, trained.pk, person)
    manifest = storage.directory(final.artifacts_path) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b"\n")  # reads the same, and is another
    ended = run(runtime, waiting)
    assert ended.state != "COMPLETED" and ended.reason == "CHECKPOINT_CORRUPTED"
    assert "a model it uses" in ended.events.order_by("id").last().note


def test_a_model_must_be_there_complete_and_of_the_right_recipe(person):
    prices = uploaded(100, person)
    unfinished, digits = training(prices, person), submitted(person)
    for operation_id, problem in {
        "op_training_20260101_000000_ffffff": "does not exist",
        unfinished.pk: "is PENDING; it must be COMPLETED",
        digits.pk: "trained with the recipe 'digits'; allowed: 'price_direction'",
    }.items():
        with pytest.raises(ConfigError) as refused:
            backtest(prices, operation_id, person)
        assert problem in refused.value.errors["parameters.operation"]
    unfinished.row.update(state="COMPLETED")
    with pytest.raises(ConfigError, match="was deleted"):
        backtest(prices, unfinished.pk, person)
