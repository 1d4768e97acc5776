"""What a training operation can be told."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field

from trainops.engines.config import CheckpointConfig, OperationConfig
from trainops.engines.errors import ConfigError
from trainops.engines.recipes import Recipe, recipes


class TrainingCheckpointConfig(CheckpointConfig):
    """When checkpoints are taken: after epochs, steps or seconds, whichever is first."""

    every_epochs: int = Field(10, ge=1, description="A checkpoint after so many epochs")


class TrainingConfig(OperationConfig):
    """A recipe, its parameters, and how it is trained."""

    recipe: str = Field(description="What is trained: the name of a registered recipe")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="The recipe's own parameters, by its own schema"
    )
    epochs: int = Field(10, ge=1, le=1_000_000, description="Passes over the training examples")
    batch_size: int = Field(32, ge=1, le=1_000_000, description="Examples in a batch")
    learning_rate: float = Field(1e-3, gt=0, le=100)
    weight_decay: float = Field(0.0, ge=0, le=10)
    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    momentum: float = Field(0.9, ge=0, lt=1, description="Of sgd")
    scheduler: Literal["none", "cosine", "step", "onecycle", "warmup_cosine"] = Field(
        "none", description="How the learning rate moves"
    )
    scheduler_step_epochs: int = Field(10, ge=1, description="Of step: epochs between two drops")
    scheduler_factor: float = Field(
        0.1, gt=0, lt=1, description="Of step: what a drop multiplies by"
    )
    warmup_fraction: float = Field(0.1, ge=0, lt=1, description="Of warmup_cosine and onecycle")
    gradient_accumulation: int = Field(1, ge=1, le=10_000, description="Batches in one step")
    max_grad_norm: float | None = Field(
        None, gt=0, description="Gradients are clipped to this norm"
    )
    early_stopping_patience: int | None = Field(
        None, ge=1, description="Stop after so many epochs without a better monitored metric"
    )
    monitor: str = Field(
        "val_loss", pattern=r"^(train|val)_[a-z][a-z0-9_]*$", description="The metric that decides"
    )
    mode: Literal["min", "max"] = Field("min", description="Whether a better metric is lower")
    log_every_steps: int = Field(10, ge=1, description="Steps between two points of the loss curve")
    checkpoint: TrainingCheckpointConfig = TrainingCheckpointConfig()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Return the config with the recipe's parameters validated and filled in.

        Raises ConfigError; wrong parameters are named "parameters.NAME".
        """
        errors: dict[str, str] = {}
        try:
            config = super().parse(raw)
        except ConfigError as error:
            config, errors = None, dict(error.errors)
        parameters = {} if "" in errors else _parse_parameters(raw, errors)
        if config is None or errors:
            raise ConfigError(errors)
        return config.model_copy(update={"parameters": parameters})

    def find_recipe(self) -> Recipe:
        """Return the recipe that this config names. Raises ConfigError where it is gone."""
        return _find(self.recipe)

    def code(self) -> Sequence[str]:
        return (self.find_recipe().build,)

    def dataset_ids(self) -> list[str]:
        return self.find_recipe().parse_parameters(self.parameters).dataset_ids()

    def check_columns(
        self, columns: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> Mapping[str, str]:
        parameters = self.find_recipe().parse_parameters(self.parameters)
        problems = parameters.check_columns(columns)
        return {f"parameters.{name}": problem for name, problem in problems.items()}


def _parse_parameters(raw: Mapping[str, Any], errors: dict[str, str]) -> dict[str, Any]:
    """Return the parameters with defaults; what is wrong goes into `errors`."""
    if errors.keys() & {"recipe", "parameters"}:
        return {}
    try:
        recipe = _find(raw["recipe"])
    except ConfigError as error:
        errors.update(error.errors)
        return {}
    try:
        return recipe.parse_parameters(raw.get("parameters", {})).model_dump(mode="json")
    except ConfigError as error:
        errors.update({f"parameters.{name}": problem for name, problem in error.errors.items()})
        return {}


def _find(name: str) -> Recipe:
    known = recipes("training")
    if name not in known:
        allowed = ", ".join(sorted(known))
        raise ConfigError({"recipe": f"got {name!r}; there is no such recipe; allowed: {allowed}"})
    return known[name]
