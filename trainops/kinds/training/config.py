"""The config of a training operation."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from trainops.learning.limits import LearningLimitsConfig
from trainops.recipe_config import RecipeConfig
from trainops.runtime.config import (
    CheckpointConfig,
    OperationConfig,
    differences,
    shown_with,
)
from trainops.runtime.errors import ConfigError
from trainops.runtime.monitors import DESCRIPTION, EXAMPLES, Monitors, MonitorsConfig

METRIC = r"^(train|val)_[a-z][a-z0-9_]*$"


class TrainingCheckpointConfig(CheckpointConfig):
    """When checkpoints are taken: after epochs, steps or seconds, whichever is first."""

    every_epochs: int = Field(10, ge=1, description="Epochs between checkpoints.")


class TrainingConfig(MonitorsConfig, RecipeConfig):
    """A recipe, its parameters, and how it is trained."""

    kind: ClassVar[str] = "training"
    FORKABLE: ClassVar[frozenset[str]] = OperationConfig.FORKABLE | {
        "epochs", "learning_rate", "weight_decay", "max_grad_norm", "early_stopping_patience",
        "log_every_steps",
    }  # fmt: skip

    epochs: int = Field(
        10, ge=1, le=1_000_000, description="Number of passes over the training examples."
    )
    batch_size: int = Field(32, ge=1, le=1_000_000, description="Number of examples per batch.")
    learning_rate: float = Field(
        1e-3,
        gt=0,
        le=100,
        description="Base learning rate; the peak for onecycle and warmup_cosine.",
    )
    weight_decay: float = Field(0.0, ge=0, le=10, description="Weight decay of the optimizer.")
    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    momentum: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="Momentum (sgd only).",
        json_schema_extra=shown_with("optimizer", "sgd"),
    )
    scheduler: Literal["none", "cosine", "step", "onecycle", "warmup_cosine"] = Field(
        "none", description="Learning rate schedule."
    )
    scheduler_step_epochs: int = Field(
        10,
        ge=1,
        description="Epochs between decays (step schedule only).",
        json_schema_extra=shown_with("scheduler", "step"),
    )
    scheduler_factor: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Decay factor (step schedule only).",
        json_schema_extra=shown_with("scheduler", "step"),
    )
    warmup_fraction: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="Fraction of all steps used for warmup (warmup_cosine and onecycle only).",
        json_schema_extra=shown_with("scheduler", "onecycle", "warmup_cosine"),
    )
    gradient_accumulation: int = Field(
        1, ge=1, le=10_000, description="Number of batches per optimizer step."
    )
    max_grad_norm: float | None = Field(
        None, gt=0, description="Maximum gradient norm for clipping; no clipping by default."
    )
    early_stopping_patience: int | None = Field(
        None,
        ge=1,
        description="Epochs without improvement of the monitored metric before training stops; "
        "never by default.",
    )
    monitor: str = Field(
        "val_loss",
        pattern=METRIC,
        description="Metric that selects the best checkpoint and triggers early stopping.",
    )
    mode: Literal["min", "max"] = Field(
        "min", description="Whether lower (min) or higher (max) values of the metric are better."
    )
    monitors: Monitors = Field(default_factory=dict, description=DESCRIPTION, examples=EXAMPLES)
    log_every_steps: int = Field(10, ge=1, description="Steps between points of the loss curve.")
    checkpoint: TrainingCheckpointConfig = TrainingCheckpointConfig()
    limits: LearningLimitsConfig = LearningLimitsConfig()

    @field_validator("monitors")
    @classmethod
    def _are_measured(cls, value: Monitors) -> Monitors:
        if wrong := [name for name in value if not re.match(METRIC, name)]:
            raise ValueError(f"{wrong[0]!r:.60} is no metric; allowed: {METRIC}")
        return value

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Return the validated config. Raises ConfigError; also for a limit without effect."""
        config = super().parse(raw)
        limit = config.limits.exploding_norm
        if limit is not None and config.max_grad_norm is None:
            problem = f"got {limit:g} without max_grad_norm, which computes the norm"
            raise ConfigError({"limits.exploding_norm": f"{problem}; allowed: with max_grad_norm"})
        return config

    def continues(self, before: OperationConfig, *, may_be_exact: bool = True) -> Sequence[str]:
        if not isinstance(before, TrainingConfig):
            return super().continues(before, may_be_exact=may_be_exact)
        changed = {name: value for name, _, value in differences(before, self)}
        steps = {name for name in changed if name.partition(".")[0] not in self.NEUTRAL}
        if steps == {"epochs"} and not may_be_exact:
            return [f"It runs to {self.epochs} epochs."]
        if steps == {"epochs"}:
            return [f"It ends with the weights of a training submitted with {self.epochs} epochs."]
        if "learning_rate" in steps:
            rate = f"The learning rate is {self.learning_rate:g} from this step on"
            return [f"{rate}; groups with a rate of their own keep their ratio to it."]
        return super().continues(before, may_be_exact=may_be_exact)

    def require_forkable(self, before: OperationConfig) -> None:
        super().require_forkable(before)
        if self.scheduler == "none" or not isinstance(before, TrainingConfig):
            return
        for name in ("learning_rate", "epochs"):
            wanted, kept = getattr(self, name), getattr(before, name)
            if wanted != kept:
                problem = f"got {wanted}; the {self.scheduler} schedule was built for {kept}"
                raise ConfigError({name: f"{problem}; allowed to differ with scheduler: none"})
