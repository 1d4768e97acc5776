"""What a training operation can be told."""

from typing import ClassVar, Literal

from pydantic import Field

from trainops.recipe_config import RecipeConfig
from trainops.runtime.config import CheckpointConfig, OperationConfig
from trainops.runtime.errors import ConfigError


class TrainingCheckpointConfig(CheckpointConfig):
    """When checkpoints are taken: after epochs, steps or seconds, whichever is first."""

    every_epochs: int = Field(10, ge=1, description="A checkpoint after so many epochs")


class TrainingConfig(RecipeConfig):
    """A recipe, its parameters, and how it is trained."""

    kind: ClassVar[str] = "training"
    FORKABLE: ClassVar[frozenset[str]] = OperationConfig.FORKABLE | {
        "epochs", "learning_rate", "weight_decay", "max_grad_norm", "early_stopping_patience",
        "log_every_steps",
    }  # fmt: skip

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

    def require_forkable(self, before: OperationConfig) -> None:
        super().require_forkable(before)
        if self.scheduler == "none" or not isinstance(before, TrainingConfig):
            return
        for name in ("learning_rate", "epochs"):
            told, kept = getattr(self, name), getattr(before, name)
            if told != kept:
                problem = f"got {told}; the schedule {self.scheduler} rests on {kept}"
                raise ConfigError({name: f"{problem}; allowed to differ with the schedule none"})
