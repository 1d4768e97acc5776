import subprocess
import sys

import pytest

from trainops.kind import KINDS
from trainops.lazy import NotLoadable, load
from trainops.recipes import find, recipes
from trainops.runtime.errors import ConfigError


def test_built_in_recipes_and_those_of_others_are_found():
    assert {"digits", "tabular", "toy"} <= recipes("training").keys()
    assert {"sma_crossover", "busy"} <= recipes("backtest").keys()
    assert recipes("cooking") == {}
    assert recipes()["toy"].label == "Toy"


@pytest.mark.parametrize("recipe", ["digits", "tabular", "toy"])
def test_every_example_is_a_config_that_works(recipe):
    found = recipes()[recipe]
    config = KINDS[found.kind].parse_config(found.example)
    assert config.recipe == recipe
    assert found.json_schema()["additionalProperties"] is False
    assert callable(found.builder())


def test_the_form_knows_which_field_is_a_dataset():
    schema = recipes()["tabular"].json_schema()
    assert schema["properties"]["dataset"]["format"] == "dataset"


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("tests.engines.toy:DIGITS_AGAIN", "2 recipes are named 'digits'"),
        ("tests.engines.toy:NOT_A_RECIPE", "is a str, not a Recipe"),
        ("tests.engines.toy:NOWHERE", "cannot be loaded"),
        ("tests.engines.toy:WITHOUT_PARAMETERS", "cannot be loaded"),
        ("tests.engines.nowhere:RECIPE", "No module named.*; after an installation, restart"),
        ("tests.engines.broken_module:RECIPE", "ZeroDivisionError"),
        ("nonsense", "cannot be loaded"),
        (":", "cannot be loaded"),
    ],
)
def test_a_recipe_that_cannot_be_used_disturbs_no_other(named, says, monkeypatch):
    monkeypatch.setenv("TRAINOPS_RECIPES", f"tests.engines.toy:RECIPE,{named}")
    assert {"digits", "tabular", "toy"} <= recipes("training").keys()
    assert recipes()["digits"].build.startswith("trainops.")
    with pytest.raises(ConfigError, match=f"got 'other'; there is no such recipe.*{says}"):
        find("other")


def test_of_two_recipes_with_one_name_none_is_used(monkeypatch):
    """Which one came first would decide what code an operation continues with."""
    named = "tests.engines.toy:RECIPE,tests.engines.toy:TOY_AGAIN"
    monkeypatch.setenv("TRAINOPS_RECIPES", named)
    with pytest.raises(ConfigError, match="2 recipes are named 'toy'"):
        find("toy")


def test_one_recipe_may_be_named_twice(monkeypatch):
    monkeypatch.setenv("TRAINOPS_RECIPES", "tests.engines.toy:RECIPE, tests.engines.toy:RECIPE,")
    assert "toy" in recipes()


def test_an_installed_package_can_bring_recipes(tmp_path, monkeypatch):
    metadata = tmp_path / "wines-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wines\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[trainops.recipes]\nwine = wines:RECIPE\n")
    (tmp_path / "wines.py").write_text(
        "from dataclasses import replace\n"
        "from tests.engines.toy import RECIPE as TOY\n"
        "RECIPE = replace(TOY, name='wine')\n"
    )
    monkeypatch.setenv("TRAINOPS_RECIPES", "  ")  # not looked up with this value before
    assert "wine" not in recipes()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="'wines:RECIPE' was installed since the start; restart"):
        find("wine")
    monkeypatch.setenv("TRAINOPS_RECIPES", " ")
    assert "wine" in recipes("training")


def test_a_recipe_that_is_gone_is_a_config_error(monkeypatch):
    config = KINDS["training"].parse_config({"recipe": "toy"})
    monkeypatch.setenv("TRAINOPS_RECIPES", "")
    with pytest.raises(ConfigError, match="no such recipe"):
        config.find_recipe()


def test_loading_says_what_could_not_be_loaded():
    with pytest.raises(NotLoadable, match="'json:nothing' cannot be loaded"):
        load("json:nothing")


LIGHT = """
import sys
import trainops.runtime.errors, trainops.runtime.job, trainops.runtime.lossless
import trainops.runtime.checkpoint.manifest, trainops.runtime.receipt, trainops.runtime.policy
from trainops.recipes import recipes
from trainops.lazy import NotLoadable, load
from trainops.kind import KINDS
for recipe in recipes().values():
    recipe.json_schema()
    config = KINDS[recipe.kind].parse_config(recipe.example)
    KINDS[recipe.kind].dataset_ids(config)
    config.check_columns({})
for engine in KINDS.values():
    engine.json_schema()
heavy = {"torch", "numpy", "numba", "pandas", "pyarrow", "sklearn", "django", "celery"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""


@pytest.mark.slow
def test_the_web_process_can_validate_without_torch():
    subprocess.run([sys.executable, "-c", LIGHT], check=True)


def test_what_the_check_of_columns_raises_names_the_recipe(monkeypatch):
    def check_columns(self, columns):
        raise ValueError("no column target")

    config = KINDS["training"].parse_config({"recipe": "toy"})
    monkeypatch.setattr("tests.engines.toy.ToyParameters.check_columns", check_columns)
    with pytest.raises(ConfigError, match="check_columns raised ValueError: no column target"):
        config.check_columns({})
