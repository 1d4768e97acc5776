"""Bad configurations: each error names the field, what was given and what is allowed."""

import pytest

from trainops.kind import KINDS
from trainops.runtime.errors import ConfigError

TRAINING = KINDS["training"]


def errors_of(**raw):
    with pytest.raises(ConfigError) as caught:
        TRAINING.parse_config({"recipe": "toy", **raw})
    return caught.value.errors


def test_defaults_are_filled_in_and_parsing_again_changes_nothing():
    config = TRAINING.parse_config({"recipe": "toy"})
    assert config.parameters == {
        "examples": 50, "width": 6, "explode_at_batch": None, "raise_at_batch": None,
        "remember": False, "two_optimizers": False,
    }  # fmt: skip
    assert config.checkpoint.every_epochs == 10 and config.checkpoint.every_seconds == 300
    again = TRAINING.parse_config(config.model_dump(mode="json"))
    assert again == config


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        ({"epochs": 0}, "epochs", "got 0; must be greater than or equal to 1"),
        ({"epochs": "ten"}, "epochs", "got 'ten'; must be a valid integer"),
        ({"epochs": "10"}, "epochs", "got '10'; must be a valid integer"),
        ({"epochs": True}, "epochs", "got True; must be a valid integer"),
        ({"learning_rate": float("nan")}, "learning_rate", "got nan; must be a finite number"),
        ({"learning_rate": float("inf")}, "learning_rate", "got inf"),
        ({"seed": -1}, "seed", "got -1"),
        ({"seed": 2**63}, "seed", "got 9223372036854775808"),
        ({"optimizer": "adamm"}, "optimizer", "must be 'sgd', 'adam' or 'adamw'"),
        ({"epoch": 3}, "epoch", "no such field (did you mean epochs?); allowed: seed, device"),
        ({"checkpoint": {"every": 3}}, "checkpoint.every", "allowed: every_steps, every_seconds"),
        ({"checkpoint": 3}, "checkpoint", "got 3"),
        ({"restart": {"policy": "always"}}, "restart.policy", "got 'always'"),
        ({"limits": {"max_duration_seconds": 0}}, "limits.max_duration_seconds", "got 0"),
        ({"monitor": "loss"}, "monitor", "got 'loss'"),
        ({"recipe": "toi"}, "recipe", "got 'toi'; there is no such recipe; allowed: digits, "),
        ({"recipe": 3}, "recipe", "got 3"),
        ({"recipe": "os:system"}, "recipe", "there is no such recipe"),
        ({"parameters": {"width": 0}}, "parameters.width", "got 0"),
        ({"parameters": {"wide": 1}}, "parameters.wide", "did you mean width?"),
        ({"parameters": [1]}, "parameters", "got [1]"),
        ({"parameters": None}, "parameters", "got None"),
    ],
)
def test_what_is_wrong_is_named(raw, field, says):
    errors = errors_of(**raw)
    assert list(errors) == [field]
    assert says in errors[field]


def test_everything_that_is_wrong_is_named_at_once():
    assert errors_of(epochs=0, batch_size="x", parameters={"width": 0}).keys() == {
        "epochs", "batch_size", "parameters.width",
    }  # fmt: skip


def test_no_recipe_and_no_object():
    for raw, field in [({}, "recipe"), (None, ""), ([], ""), ("toy", ""), ({1: 2}, "recipe")]:
        with pytest.raises(ConfigError) as caught:
            TRAINING.parse_config(raw)
        assert field in caught.value.errors


def test_a_long_value_is_not_repeated_at_length():
    assert len(errors_of(epochs="x" * 10_000)["epochs"]) < 200


@pytest.mark.parametrize("dataset", ["../../etc/passwd", "ds_123", "ds_0123456789ABCDEF", "", 3])
def test_a_dataset_id_is_no_path(dataset):
    errors = errors_of(recipe="tabular", parameters={"dataset": dataset, "target": "y"})
    assert list(errors) == ["parameters.dataset"]


def test_the_datasets_of_a_config_are_found():
    parameters = {"dataset": "ds_0123456789abcdef", "target": "y"}
    config = TRAINING.parse_config({"recipe": "tabular", "parameters": parameters})
    assert TRAINING.dataset_ids(config) == ["ds_0123456789abcdef"]
    assert TRAINING.dataset_ids(TRAINING.parse_config({"recipe": "toy"})) == []


@pytest.mark.parametrize(
    ("parameters", "field", "says"),
    [
        (
            {"target": "prize"},
            "target",
            "not in the dataset; its columns: size, price, town, notes",
        ),
        ({"drop_columns": ["notes", "colour"]}, "drop_columns", "got 'colour'; not in the dataset"),
        ({"drop_columns": []}, "drop_columns", "also exclude these columns: notes"),
        ({"target": "town", "task": "regression"}, "target", "regression needs numbers"),
    ],
)
def test_what_the_described_columns_can_tell_is_reported_before_anything_runs(
    parameters, field, says
):
    assert list(problems := problems_with(parameters)) == [f"parameters.{field}"]
    assert says in problems[f"parameters.{field}"]


def test_a_text_column_with_too_many_values_to_count_is_left_to_the_rows():
    assert problems_with({"drop_columns": []}, distinct=None) == {}
    assert problems_with({}) == {}


def problems_with(parameters, distinct=99):
    """Return what is wrong with these parameters for a table of four columns."""
    dataset = "ds_0123456789abcdef"
    types = {"size": "number", "price": "number", "town": "category", "notes": "text"}
    columns = [{"name": name, "type": kind, "distinct": distinct} for name, kind in types.items()]
    wanted = {"dataset": dataset, "target": "price", "drop_columns": ["notes"], **parameters}
    config = TRAINING.parse_config({"recipe": "tabular", "parameters": wanted})
    assert config.check_columns({}) == {}
    return config.check_columns({dataset: columns})


def test_forms_can_be_made_from_the_schemas():
    schema = TRAINING.json_schema()
    assert schema["properties"]["epochs"]["minimum"] == 1
    assert schema["properties"]["optimizer"]["enum"] == ["sgd", "adam", "adamw"]
