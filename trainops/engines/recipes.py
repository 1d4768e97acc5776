"""Recipes: what can be trained (tested, simulated) by name, with typed parameters.

A config names a recipe; it never carries an import path or code. There are three sources: the
built-in ones, the entry points of the group "trainops.recipes", and the environment variable
TRAINOPS_RECIPES="package.module:RECIPE,...". Each names a Recipe object in a module that does not
import torch, because the web process reads it too.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from trainops.engines.config import Strict
from trainops.engines.errors import RecipeError

BUILT_IN = (
    "trainops.engines.training.recipes.digits:RECIPE",
    "trainops.engines.training.recipes.tabular:RECIPE",
    "trainops.engines.training.recipes.images:RECIPE",
    "trainops.engines.training.recipes.segmentation:RECIPE",
    "trainops.engines.training.recipes.price_direction:RECIPE",
    "trainops.engines.backtest.recipes.buy_and_hold:RECIPE",
    "trainops.engines.backtest.recipes.sma_crossover:RECIPE",
    "trainops.engines.backtest.recipes.ema_crossover:RECIPE",
    "trainops.engines.backtest.recipes.rsi_reversion:RECIPE",
    "trainops.engines.backtest.recipes.bollinger:RECIPE",
    "trainops.engines.backtest.recipes.donchian_breakout:RECIPE",
    "trainops.engines.backtest.recipes.macd:RECIPE",
    "trainops.engines.backtest.recipes.momentum_rotation:RECIPE",
    "trainops.engines.backtest.recipes.model:RECIPE",
    "trainops.engines.rl.recipes.grid_world:RECIPE",
    *(
        f"trainops.engines.rl.recipes.levels:{level}"
        for level in ("CORRIDOR", "MEADOW", "TOWN", "FOG", "CITY")
    ),
    "trainops.engines.rl.recipes.gymnasium_id:RECIPE",
    "trainops.engines.federated.recipes.digits:RECIPE",
    "trainops.engines.federated.recipes.tabular:RECIPE",
    "trainops.engines.federated.recipes.images:RECIPE",
    "trainops.engines.federated.recipes.segmentation:RECIPE",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One thing that an engine can be asked to do.

    `parameters` names a Strict model in a module without torch ("package.module:Parameters");
    `build` names the function that makes the engine's ingredients from it, and may import
    anything. `example` is a config that works as it stands, apart from dataset ids.
    """

    name: str
    kind: str
    label: str
    description: str
    parameters: str
    build: str
    example: Mapping[str, Any] = field(default_factory=dict)

    def parse_parameters(self, raw: Mapping[str, Any]) -> Strict:
        """Return the validated parameters. Raises ConfigError."""
        return self._parameters_class().parse(raw)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters, for forms and documentation."""
        return self._parameters_class().model_json_schema()

    def builder(self) -> Any:
        """Return the build function; this is what may import torch."""
        return load(self.build)

    def _parameters_class(self) -> type[Strict]:
        return cast(type[Strict], load(self.parameters))


def recipes(kind: str | None = None) -> dict[str, Recipe]:
    """Return the registered recipes by name. Raises RecipeError."""
    found = _registered(os.environ.get("TRAINOPS_RECIPES", ""))
    return {name: each for name, each in found.items() if kind in (None, each.kind)}


def load(path: str) -> Any:
    """Return the object that "package.module:NAME" names. Raises RecipeError."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise RecipeError(f"{path!r} cannot be loaded: {error}") from error


@cache
def _registered(named_in_environment: str) -> dict[str, Recipe]:
    found: dict[str, Recipe] = {}
    sources: dict[str, str] = {}
    for source, recipe in _sources(named_in_environment):
        if not isinstance(recipe, Recipe):
            raise RecipeError(f"{source} is a {type(recipe).__name__}, not a Recipe")
        if recipe.name in found and sources[recipe.name] != source:
            raise RecipeError(
                f"two recipes are named {recipe.name!r}: {sources[recipe.name]} and {source}"
            )
        found[recipe.name], sources[recipe.name] = recipe, source
    return found


def _sources(named_in_environment: str) -> Iterator[tuple[str, Any]]:
    named = [each.strip() for each in named_in_environment.split(",") if each.strip()]
    installed = [each.value for each in entry_points(group="trainops.recipes")]
    for path in (*BUILT_IN, *installed, *named):
        yield path, load(path)
