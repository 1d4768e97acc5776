import pytest

from tests.backtest.market import BACKTEST, DATASET
from trainops.kinds.backtest.config import BacktestConfig
from trainops.recipes import recipes
from trainops.runtime.errors import ConfigError

CONFIG = {"recipe": "sma_crossover", "dataset": DATASET}


def described(**kinds):
    return {DATASET: [{"name": name, "type": kind} for name, kind in kinds.items()]}


def test_a_config_names_its_dataset():
    assert BACKTEST.dataset_ids(BacktestConfig.parse(CONFIG)) == [DATASET]


def test_parameters_are_filled_in():
    config = BacktestConfig.parse({**CONFIG, "parameters": {"fast": 5}})
    assert (config.parameters["fast"], config.parameters["slow"]) == (5, 20)


@pytest.mark.parametrize(
    ("wrong", "field", "problem"),
    [
        ({"parameters": {"fast": 20, "slow": 20}}, "parameters.slow", "must be above fast (20)"),
        ({"sizing": {"amount": 2.0}}, "sizing.amount", "allowed: at most 1"),
        ({"margin": 0.1, "maintenance_margin": 0.2}, "maintenance_margin", "at most the margin"),
        ({"timezone": "Mars/Olympus"}, "timezone", "allowed: names such as"),
        ({"cash": 0.0}, "cash", "greater than 0"),
        ({"recipe": "digits"}, "recipe", "there is no such recipe; allowed: bollinger"),
    ],
)
def test_what_cannot_be_is_refused_by_field(wrong, field, problem):
    with pytest.raises(ConfigError) as error:
        BacktestConfig.parse({**CONFIG, **wrong})
    assert problem in error.value.errors[field]


def test_a_dataset_without_prices_is_refused_before_anything_is_created():
    config = BacktestConfig.parse(CONFIG)
    good = described(Date="datetime", Open="number", High="number", Low="number", Close="integer")
    assert config.check_columns(good) == {}
    problems = config.check_columns(described(size="number", town="category"))
    assert "no column for time, open, high, low, close was found" in problems["dataset"]
    text = described(Date="datetime", Open="text", High="number", Low="number", Close="number")
    assert "column 'Open' (open) holds text" in config.check_columns(text)["dataset"]


@pytest.mark.parametrize("recipe", recipes("backtest").values(), ids=lambda recipe: recipe.name)
def test_every_example_is_valid(recipe):
    assert BACKTEST.parse_config(recipe.example).recipe == recipe.name
