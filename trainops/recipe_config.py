"""Configs of the kinds of operations that run a recipe."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import Field

from trainops.recipes import Recipe, find
from trainops.runtime.columns import DescribedColumns
from trainops.runtime.config import NamedModel, OperationConfig
from trainops.runtime.errors import ConfigError

logger = logging.getLogger(__name__)


class RecipeConfig(OperationConfig):
    """A recipe of one kind, and its parameters."""

    kind: ClassVar[str]

    recipe: str = Field(description="Name of a registered recipe.")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Parameters of the recipe; each recipe defines its own schema.",
    )

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Return the config with the recipe's parameters validated and filled in.

        Raises ConfigError; wrong parameters are named "parameters.NAME".
        """
        errors: dict[str, str] = {}
        num_more = 0
        try:
            config = super().parse(raw)
        except ConfigError as error:
            config, errors, num_more = None, dict(error.errors), error.num_more
        parameters = {} if "" in errors else cls._parse_parameters(raw, errors)
        if config is None or errors:
            raise ConfigError(errors, num_more)
        return config.model_copy(update={"parameters": parameters})

    def find_recipe(self) -> Recipe:
        """Return the recipe that this config names. Raises ConfigError where it is gone."""
        return self._find(self.recipe)

    def defaults(self) -> dict[str, object]:
        parameters = self.find_recipe().parse_parameters(self.parameters)
        return super().defaults() | {"parameters": parameters.defaults()}

    def code(self) -> Sequence[str]:
        return (self.find_recipe().build,)

    def datasets(self) -> dict[str, str]:
        parameters = self.find_recipe().parse_parameters(self.parameters).datasets()
        return {name: f"parameters.{field}" for name, field in parameters.items()} | (
            super().datasets()
        )

    def dataset_ids(self) -> list[str]:
        parameters = self.find_recipe().parse_parameters(self.parameters)
        return list(dict.fromkeys([*super().dataset_ids(), *parameters.dataset_ids()]))

    def directory_ids(self) -> set[str]:
        parameters = self.find_recipe().parse_parameters(self.parameters)
        return super().directory_ids() | parameters.directory_ids()

    def models(self) -> dict[str, NamedModel]:
        parameters = self.find_recipe().parse_parameters(self.parameters).models()
        return super().models() | {
            name: NamedModel(f"parameters.{each.field}", each.mark)
            for name, each in parameters.items()
        }

    def check_columns(self, columns: DescribedColumns) -> Mapping[str, str]:
        parameters = self.find_recipe().parse_parameters(self.parameters)
        try:
            problems = parameters.check_columns(columns)
        except Exception as error:  # a recipe can raise anything
            logger.warning("check_columns of %s failed", self.recipe, exc_info=True)
            raised = f"{type(error).__name__}: {error}"[:500]
            problem = f"its check_columns raised {raised}; allowed: to return problems by field"
            raise ConfigError({"recipe": problem}) from error
        return {f"parameters.{name}": problem for name, problem in problems.items()}

    @classmethod
    def _parse_parameters(cls, raw: Mapping[str, Any], errors: dict[str, str]) -> dict[str, Any]:
        """Return the parameters with defaults; what is wrong goes into `errors`."""
        if errors.keys() & {"recipe", "parameters"}:
            return {}
        try:
            recipe = cls._find(raw["recipe"])
        except ConfigError as error:
            errors.update(error.errors)
            return {}
        try:
            return recipe.parse_parameters(raw.get("parameters", {})).model_dump(mode="json")
        except ConfigError as error:
            errors.update({f"parameters.{name}": problem for name, problem in error.errors.items()})
            return {}

    @classmethod
    def _find(cls, name: str) -> Recipe:
        return find(name, cls.kind)
