"""Recipes: what can be trained (tested, simulated) by name, with typed parameters.

A config names a recipe; it never carries an import path or code. There are three sources: the
registered kinds, the entry points of the group "trainops.recipes", and the environment variable
TRAINOPS_RECIPES="package.module:RECIPE,...". Each names a Recipe object in a module that does not
import torch, because the web process reads it too.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from trainops.kind import KINDS
from trainops.lazy import NotLoadable, load
from trainops.registrations import registered
from trainops.runtime.config import IsModel, Strict
from trainops.runtime.errors import RecipeError


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

    def model_marks(self) -> dict[str, IsModel]:
        """Return the parameters that name a model, by their names."""
        return self._parameters_class().model_marks()

    def builder(self) -> Any:
        """Return the build function; this is what may import torch."""
        return load(self.build)

    def _parameters_class(self) -> type[Strict]:
        return cast(type[Strict], load(self.parameters))


def recipes(kind: str | None = None) -> dict[str, Recipe]:
    """Return the registered recipes by name. Raises RecipeError."""
    found = _registered(os.environ.get("TRAINOPS_RECIPES", ""))
    return {name: each for name, each in found.items() if kind in (None, each.kind)}


def users_of_model(kind: str, recipe: str) -> list[Recipe]:
    """Return the recipes that take a model of this kind and recipe. Raises RecipeError."""
    return [
        each
        for each in recipes().values()
        if any(mark.fits(kind, recipe) for mark in each.model_marks().values())
    ]


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
    installed = [each.value for each in registered("trainops.recipes")]
    built_in = [path for kind in KINDS.values() for path in kind.recipes]
    for path in (*built_in, *installed, *named):
        try:
            yield path, load(path)
        except NotLoadable as error:
            raise RecipeError(str(error)) from error
