"""Settings of trainings by other trainers' programs, by the names that these trainers use."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from trainops.runtime.config import Strict

SkipUndecodable: TypeAlias = Annotated[
    bool,
    Field(description="Leave examples that cannot be loaded out of their batches and count them."),
]


class TransformersParameters(Strict):
    """Settings of a Hugging Face Trainer's loaders; the parameters of a recipe may derive from it.

    The Trainer has its own in TrainingArguments.
    """

    skip_undecodable: SkipUndecodable = False


class LightningParameters(Strict):
    """Arguments of Lightning's Trainer; the parameters of a recipe derive from it."""

    max_epochs: int = Field(10, ge=1, le=1_000_000, description="Number of epochs.")
    max_steps: int | None = Field(
        None, ge=1, description="Number of optimizer steps, in place of a number of epochs."
    )
    accumulate_grad_batches: int = Field(
        1, ge=1, le=10_000, description="Number of batches per optimizer step."
    )
    gradient_clip_val: float | None = Field(
        None, gt=0, description="Limit for clipping gradients; no clipping by default."
    )
    gradient_clip_algorithm: Literal["norm", "value"] = Field(
        "norm", description="Whether the norm or each value of the gradients is clipped."
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true", description="Precision of the steps; 16-mixed on GPUs only."
    )
    check_val_every_n_epoch: int = Field(1, ge=1, description="Epochs between validations.")
    val_check_interval: int | None = Field(
        None, ge=1, description="Batches of an epoch between validations; by default at its end."
    )
    limit_train_batches: int | None = Field(
        None, ge=1, description="Maximum number of training batches per epoch."
    )
    limit_val_batches: int | None = Field(
        None, ge=0, description="Maximum number of batches per validation loader; 0 for none."
    )
    skip_undecodable: SkipUndecodable = False
