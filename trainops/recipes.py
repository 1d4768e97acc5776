"""Recipes: what can be trained (tested, simulated) by name, with typed parameters.

A config names a recipe; it never carries an import path or code. There are three sources: the
registered kinds, the entry points of the group "trainops.recipes", and the environment variable
TRAINOPS_RECIPES="package.module:RECIPE,...". Each names a Recipe object in a module that does not
import torch, because the web process reads it too. They are read once in a process.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from trainops.kind import KINDS
from trainops.lazy import NotLoadable, load
from trainops.registrations import registered
from trainops.runtime.config import IsModel, Strict
from trainops.runtime.errors import ConfigError

logger = logging.getLogger(__name__)
RESTART = "restart trainops"


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
    """Return the recipes by name. One that cannot be used is left out: see `find`."""
    found = _registered(os.environ.get("TRAINOPS_RECIPES", "")).recipes
    return {name: each for name, each in found.items() if kind in (None, each.kind)}


def find(name: str, kind: str | None = None) -> Recipe:
    """Return the recipe of this name. Raises ConfigError, also with those that cannot be used."""
    known = recipes(kind)
    if name in known:
        return known[name]
    problem = f"got {name!r}; there is no such recipe; allowed: {', '.join(sorted(known))}"
    raise ConfigError({"recipe": "; ".join([problem, *problems()])})


def problems() -> list[str]:
    """Return a sentence for each registered recipe that cannot be used."""
    named_in_environment = os.environ.get("TRAINOPS_RECIPES", "")
    read = _registered(named_in_environment)
    new = [path for path in _sources(named_in_environment) if path not in read.sources]
    return [*read.problems, *(f"{path!r} was installed since the start; {RESTART}" for path in new)]


def users_of_model(kind: str, recipe: str) -> list[Recipe]:
    """Return the recipes that take a model of this kind and recipe."""
    return [
        each
        for each in recipes().values()
        if any(mark.fits(kind, recipe) for mark in each.model_marks().values())
    ]


@dataclass(frozen=True, slots=True)
class RegisteredRecipes:
    """What was read of the registered recipes, once in a process."""

    recipes: dict[str, Recipe]
    sources: tuple[str, ...]
    problems: list[str]


@cache
def _registered(named_in_environment: str) -> RegisteredRecipes:
    """Read all registered recipes. What is wrong with one is no problem of the others.

    Where several have a name, none of them has it, except a recipe that comes with trainops.
    """
    sources = tuple(dict.fromkeys(_sources(named_in_environment)))
    found: dict[str, Recipe] = {}
    places: dict[str, list[str]] = {}
    problems = []
    for source in sources:
        try:
            recipe = _loaded(source)
        except Exception as error:  # noqa: BLE001 - third-party code can raise any exception
            said = str(error) if isinstance(error, NotLoadable) else f"{source!r}: {error!r}"
            problems.append(f"{said}; after an installation, {RESTART}")
            continue
        if not isinstance(recipe, Recipe):
            problems.append(f"{source} is a {type(recipe).__name__}, not a Recipe")
            continue
        places.setdefault(recipe.name, []).append(source)
        found.setdefault(recipe.name, recipe)
    for name, several in places.items():
        if len(several) > 1:
            problems.append(f"{len(several)} recipes are named {name!r}: {' and '.join(several)}")
            if several[0] not in _built_in():
                del found[name]
    for each in problems:
        logger.warning("A recipe cannot be used: %s", each)
    return RegisteredRecipes(found, sources, problems)


def _loaded(source: str) -> Any:
    recipe = load(source)
    if isinstance(recipe, Recipe):
        recipe.json_schema()  # loads the class of its parameters
    return recipe


def _built_in() -> list[str]:
    return [path for kind in KINDS.values() for path in kind.recipes]


def _sources(named_in_environment: str) -> list[str]:
    installed = [each.value for each in registered("trainops.recipes")]
    named = [each.strip() for each in named_in_environment.split(",") if each.strip()]
    return [*_built_in(), *installed, *named]
