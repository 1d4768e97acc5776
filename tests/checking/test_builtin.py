"""No false alarm: every built-in recipe and the examples are found exact."""

import os
from pathlib import Path

import pytest

from tests.backtest import test_model
from tests.directories import making, test_recipes
from tests.engines.contract import BARS, CASES, DATASET, Case, price_table, small_table
from tests.thinning import some_of
from trainops.checking.check import check_recipe
from trainops.checking.servers import Servers
from trainops.kind import KINDS
from trainops.lazy import load

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("examples.recipes.wine:RECIPE", "flowers.iris:RECIPE")
BUILT_IN = [load(path).name for kind in KINDS.values() for path in kind.recipes]
WITHOUT_CASE = {  # of the recipes that need data
    "bollinger": {"period": 3},
    "buy_and_hold": {},
    "ema_crossover": {"fast": 1, "slow": 2},
}
OTHERS = [
    *(
        Case("backtest", name, {**BARS, "recipe": name, "parameters": parameters}, (), price_table)
        for name, parameters in WITHOUT_CASE.items()
    ),
    Case(
        "federated",
        "tabular",
        {"recipe": "federated_tabular", "parameters": {"dataset": DATASET, "target": "town"},
         "clients": 2, "rounds": 3, "local_epochs": 2, "batch_size": 8},
        (),
        small_table,
    ),
]  # fmt: skip
DIRECTORIES = {
    "characters": (test_recipes.write_text, {"length": 8, "width": 8, "layers": 1}),
    "image_folders": (making.image_folders, {"side": 8, "channels": 2}),
    "large_table": (test_recipes.numbers, {"target": "y", "width": 3}),
}
BY_RECIPE = {case.config.get("recipe"): case for case in reversed([*CASES, *OTHERS])}


@pytest.fixture(scope="module")
def servers():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINOPS_RECIPES", ",".join(EXAMPLES))
        patch.syspath_prepend(ROOT / "examples" / "recipe_package")
        paths = (ROOT / "examples" / "recipe_package", os.environ.get("PYTHONPATH", ""))
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
        with Servers() as running:
            yield running


def check(name, servers, config=None, inputs=None):
    return check_recipe(
        name, servers=servers, config=config, inputs=inputs, max_steps=9, max_seconds=4,
        measures_cost=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", some_of(sorted({*BUILT_IN} - {"model", *DIRECTORIES}), every=9))
def test_a_built_in_recipe_is_exact(name, servers, tmp_path):
    case = BY_RECIPE.get(name)
    report = check(
        name,
        servers,
        config=None if case is None else {**case.config, "threads": 1},
        inputs=None if case is None else case.inputs(tmp_path),
    )
    assert report.is_exact and not report.warnings, str(report)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("name", some_of([*DIRECTORIES], every=3))
def test_a_built_in_recipe_that_reads_a_directory_is_exact(name, processes, servers, tmp_path):
    fill, small = DIRECTORIES[name]
    fill(tmp_path)
    parameters = {"epochs": 2, "batch_size": 4, "directory": DATASET, **small}
    config = {"parameters": parameters, "threads": 1, "processes": processes}
    report = check(name, servers, config, {DATASET: tmp_path})
    assert report.is_exact and not report.warnings, str(report)


@pytest.mark.exhaustive
def test_a_backtest_of_a_trained_model_is_exact(servers, tmp_path):
    table = test_model.waves(90)
    model = test_model.trained(table, tmp_path)
    files = test_model.write(table, tmp_path)
    config = {"dataset": test_model.DATASET, "parameters": {"operation": test_model.MODEL}}
    report = check("model", servers, config, files | {test_model.MODEL: model.path})
    assert report.is_exact, str(report)


@pytest.mark.parametrize("name", some_of(["wine", "iris"], every=2))
def test_an_example_is_exact(name, servers):
    report = check(name, servers)
    assert report.is_exact and not report.warnings, str(report)
