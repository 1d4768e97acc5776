"""Tables of people's own: every type of column, holes, and messages that name the column."""

import datetime
import decimal
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.engines.contract import DATASET, Case, attempt, small_table
from trainops.kind import KINDS
from trainops.learning.data import split
from trainops.learning.tasks import tabular_table as tables
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Failed, Succeeded

N = 40
TEXT = [f"a comment number {i}" for i in range(60)]


@pytest.fixture
def make(tmp_path):
    """Make a job for a table, as the worker would."""

    def make(table, target="y", *, epochs=1, batch_size=8, learning_rate=1e-3, **parameters):
        path = tmp_path / "table.parquet"
        pq.write_table(table, path)
        engine = KINDS["training"]
        config = engine.parse_config(
            {
                "recipe": "tabular",
                "parameters": {"dataset": DATASET, "target": target, **parameters},
                "epochs": epochs,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
            }
        )
        return engine.make_job(config, {DATASET: path})

    return make


def table(**columns):
    return pa.table({"y": [float(i) for i in range(N)], **columns})


def error_of(make, *args, **kwargs):
    with pytest.raises(InputError) as caught:
        make(*args, **kwargs)
    ((field, problem),) = caught.value.errors.items()
    return field, problem


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([i % 3 for i in range(N)], "classification"),
        (list(range(N)), "regression"),
        ([i / 2 for i in range(N)], "regression"),
        ([decimal.Decimal(i) / 4 for i in range(N)], "regression"),
        (["ab"[i % 2] for i in range(N)], "classification"),
        ([i % 2 == 0 for i in range(N)], "classification"),
    ],
)
def test_the_task_follows_from_the_target(make, values, task):
    job = make(pa.table({"x": [float(i) for i in range(N)], "y": values}))
    assert job.trainer.ingredients.description["task"] == task


def test_every_type_of_column_becomes_finite_numbers(make):
    day = datetime.date(2024, 1, 1)
    columns = {
        "float": [None if i % 5 == 0 else i / 3 for i in range(N)],
        "integer": pa.array([None if i == 3 else i for i in range(N)], pa.int32()),
        "unsigned": pa.array(range(N), pa.uint8()),
        "decimal": [decimal.Decimal(i) / 8 for i in range(N)],
        "boolean": [None if i == 1 else i % 2 == 0 for i in range(N)],
        "date": [None if i == 2 else day + datetime.timedelta(days=i) for i in range(N)],
        "moment": pa.array([i * 1000 for i in range(N)], pa.timestamp("ms", tz="UTC")),
        "time": pa.array(range(N), pa.time32("s")),
        "span": pa.array(range(N), pa.duration("us")),
        "nothing": pa.nulls(N),
        "no_number": pa.array([None] * N, pa.float64()),
        "same": [5.0] * N,
        "nan": [math.nan if i % 4 == 0 else 1.0 * i for i in range(N)],
        "category": [None if i == 7 else "abc"[i % 3] for i in range(N)],
        "dictionary": pa.array(["uv"[i % 2] for i in range(N)]).dictionary_encode(),
        "large": pa.array(["st"[i % 2] for i in range(N)], pa.large_string()),
    }
    job = make(table(**columns))
    numbers, codes = job.trainer.train.inputs
    assert bool(torch.isfinite(numbers).all()) and float(numbers.abs().max()) < 20
    assert codes.shape == (32, 3)
    assert job.trainer.ingredients.description["columns"] == [
        *[name for name in columns if name not in ("category", "dictionary", "large")],
        "category", "dictionary", "large",
    ]  # fmt: skip
    while job.step < job.total_steps:
        job.advance()
    assert math.isfinite(job.result()["final"]["val_loss"])


def test_medians_means_and_categories_come_from_the_training_rows_alone(make):
    train, validation = split(N, 0.2, seed=0)
    values, names = np.arange(N, dtype=float), np.array(["common"] * N, dtype=object)
    values[validation.numpy()] = 1e6  # would shift every figure
    names[validation.numpy()] = "unseen"
    job = make(table(x=values, name=list(names)))
    constants = job.trainer.ingredients.constants
    assert constants["numbers"]["x"]["median"] == float(np.median(values[train.numpy()]))
    assert constants["numbers"]["x"]["mean"] == float(values[train.numpy()].mean())
    assert constants["categories"]["name"] == ["common"]
    assert set(job.trainer.validation.inputs[1].flatten().tolist()) == {tables.OTHER}


def test_missing_numbers_get_the_median_and_a_column_that_says_so():
    values = np.array([1.0, 2.0, 9.0, np.nan])
    constants = tables.measure_numbers(values)
    assert constants["median"] == 2.0 and constants["has_missing"]
    column, is_missing = tables.apply_numbers(values, constants)
    assert is_missing.tolist() == [0, 0, 0, 1] and column[3] == column[1]
    (alone,) = tables.apply_numbers(values, {**constants, "has_missing": False})
    assert np.isfinite(alone).all()


def test_rare_categories_become_other_and_missing_ones_have_a_code_of_their_own():
    values = ["a", "b", "a", "c", None, "b", "a"]
    known = tables.measure_categories(values, max_categories=2)
    assert known == ["a", "b"]
    first, second = tables.FIRST_KNOWN, tables.FIRST_KNOWN + 1
    assert tables.apply_categories(values, known).tolist() == [
        first, second, first, tables.OTHER, tables.MISSING, second, first,
    ]  # fmt: skip


def test_a_regression_is_reported_in_the_units_of_its_target(make):
    plain = {"x": [float(i) for i in range(N)]}
    small = make(table(**plain), epochs=3)
    curve = [small.advance() for _ in range(small.total_steps)]
    large = make(pa.table({"y": [1000.0 * i for i in range(N)], **plain}), epochs=3)
    scaled = [large.advance() for _ in range(large.total_steps)]
    for one, other in zip(curve, scaled, strict=True):
        if "val_loss" in one:
            assert other["val_loss"] / one["val_loss"] == pytest.approx(1e6, rel=1e-3)
            assert other["val_absolute_error"] / one["val_absolute_error"] == pytest.approx(
                1e3, rel=1e-3
            )
            assert one["val_absolute_error"] < N


def test_rows_without_a_target_are_left_out_and_counted(make):
    values = [None if i % 4 == 0 else float(i) for i in range(N)]
    description = make(
        pa.table({"x": [float(i) for i in range(N)], "y": values})
    ).trainer.ingredients.description
    assert description["rows_without_target"] == 10 and description["rows"] == 30
    assert description["training_rows"] + description["validation_rows"] == 30


def test_the_result_names_columns_and_classes(tmp_path):
    case = Case(
        "training",
        "town",
        {"recipe": "tabular", "parameters": {"dataset": DATASET, "target": "town"}, "epochs": 2},
        stops=(),
        table=small_table,
    )
    outcome = attempt(case, tmp_path)
    assert isinstance(outcome, Succeeded)
    details = outcome.result["details"]
    assert details["classes"] == ["A", "B", "C", "D"] and details["task"] == "classification"
    assert details["columns"] == ["size", "floor", "is_new", "sold_on", "price"]


@pytest.mark.slow
def test_it_learns_what_there_is_to_learn(make):
    rows = range(400)
    town = ["north" if i % 2 else "south" for i in rows]
    size = [float((i * 7) % 13) for i in rows]
    price = [100 * s + (500 if t == "north" else 0) for s, t in zip(size, town, strict=True)]
    houses = pa.table({"size": size, "town": town, "y": price})
    job = make(houses, epochs=40, batch_size=32, learning_rate=5e-3, dropout=0.0)
    while job.step < job.total_steps:
        job.advance()
    spread = float(np.std(price))
    assert job.result()["best"]["value"] < (0.2 * spread) ** 2


@pytest.mark.parametrize(
    ("arguments", "field", "says"),
    [
        ({"target": "why"}, "target", "got 'why'; not in the dataset; its columns: y, x"),
        ({"drop_columns": ["q"]}, "drop_columns", "got 'q'; not in the dataset"),
        ({"drop_columns": ["x"]}, "drop_columns", "no input column is left"),
        ({"target": "word", "task": "regression"}, "task", "column 'word' holds string"),
        ({"target": "lonely"}, "target", "column 'lonely' has 1 different values"),
        ({"target": "empty"}, "target", "has a value in 0 of 40 rows"),
        ({"target": "day"}, "task", "column 'day' holds date32[day]; name the task"),
        ({"target": "infinite"}, "target", "column 'infinite' is infinite in 1 rows"),
    ],
)
def test_what_does_not_fit_the_table_is_named(make, arguments, field, says):
    targets = {
        "word": ["ab"[i % 2] for i in range(N)],
        "lonely": ["a"] * N,
        "empty": pa.nulls(N),
        "day": pa.array(range(N), pa.date32()),
        "infinite": [math.inf if i == 1 else float(i) for i in range(N)],
    }
    target = {name: each for name, each in targets.items() if name == arguments.get("target")}
    numbers = [float(i) for i in range(N)]
    where, problem = error_of(make, table(x=numbers, **target), **arguments)
    assert where == f"parameters.{field}" and says in problem


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (TEXT, "'x' holds free text (60 different values in 60 rows)"),
        ([[1, 2]] * N, "'x' holds list<"),
        ([b"raw"] * N, "'x' holds binary"),
        ([math.inf] + [1.0] * (N - 1), "'x' is infinite in 1 rows"),
    ],
)
def test_a_column_that_cannot_be_read_is_named(make, column, says):
    numbers = list(range(len(column)))
    field, problem = error_of(make, pa.table({"x": column, "y": numbers}))
    assert field == "parameters.drop_columns" and says in problem
    assert make(pa.table({"x": column, "y": numbers, "z": numbers}), drop_columns=["x"])


def test_a_table_that_was_not_given(tmp_path):
    case = Case(
        "training",
        "nowhere",
        {"recipe": "tabular", "parameters": {"dataset": DATASET, "target": "y"}},
        stops=(),
    )
    outcome = attempt(case, tmp_path)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError)


def test_too_few_rows(make):
    field, problem = error_of(make, table(x=[1.0] * N).slice(0, 4))
    assert field == "parameters.target" and "at least 5 are needed" in problem
