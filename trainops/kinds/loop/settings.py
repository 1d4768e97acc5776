"""Settings of trainings by modules and trainers, as fields of a recipe's parameters."""

from typing import Literal, TypeAlias

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from trainops.kinds.loop.options import OPTIMIZER_OPTIONS, SCHEDULE_OPTIONS, by_name
from trainops.runtime.config import Strict

Option: TypeAlias = bool | int | float | str | list[float]
MAX_STEPS = 10**9

WITHOUT_DECAY = frozenset({"LBFGS", "Rprop", "SparseAdam"})


def _checked(given: dict[str, Option], known: type[Strict] | None) -> dict[str, Option]:
    """Return the options as given. Raises ValidationError, which names each wrong one."""
    if known is None:  # the name itself is wrong
        return given
    if unknown := given.keys() - known.model_fields.keys():
        allowed = ", ".join(known.model_fields) or "nothing"
        raise ValueError(f"{', '.join(sorted(unknown))} is unknown; allowed: {allowed}")
    known.model_validate(given)
    return given


class OptimizerSettings(Strict):
    """An optimizer of torch.optim by name."""

    model_config = ConfigDict(json_schema_extra=by_name(OPTIMIZER_OPTIONS))

    name: Literal[
        "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon",
        "NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam",
    ] = Field("AdamW", description="Optimizer of torch.optim.")  # fmt: skip
    learning_rate: float = Field(1e-3, gt=0, le=100, description="Initial learning rate.")
    weight_decay: float | None = Field(
        None, ge=0, le=10, description="Weight decay; by default that of the optimizer."
    )
    options: dict[str, Option] = Field(
        default_factory=dict,
        description="Further arguments of the optimizer, by the names that torch uses.",
        examples=[{"betas": [0.9, 0.95]}],
    )

    @field_validator("weight_decay")
    @classmethod
    def _has_decay(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("name") in WITHOUT_DECAY:
            raise ValueError(f"{info.data['name']} has no weight decay; allowed: nothing")
        return value

    @field_validator("options")
    @classmethod
    def _knows(cls, value: dict[str, Option], info: ValidationInfo) -> dict[str, Option]:
        return _checked(value, OPTIMIZER_OPTIONS.get(info.data.get("name", "")))


class ScheduleSettings(Strict):
    """A learning rate schedule of torch.optim.lr_scheduler by name."""

    model_config = ConfigDict(json_schema_extra=by_name(SCHEDULE_OPTIONS))

    name: Literal[
        "none", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR",
        "ExponentialLR", "LinearLR", "MultiStepLR", "OneCycleLR", "PolynomialLR",
        "ReduceLROnPlateau", "StepLR",
    ] = Field("none", description="Schedule of torch.optim.lr_scheduler.")  # fmt: skip
    interval: Literal["step", "epoch"] = Field(
        "step",
        description="Unit of the schedule: optimizer steps or epochs "
        "(ReduceLROnPlateau: always validations).",
    )
    metric: str = Field(
        "val_loss", max_length=64, description="Validation metric (ReduceLROnPlateau only)."
    )
    options: dict[str, Option] = Field(
        default_factory=dict,
        description="Arguments of the schedule, by the names that torch uses; T_max, total_steps "
        "and total_iters are the length of the training by default.",
        examples=[{"step_size": 10, "gamma": 0.5}],
    )

    @field_validator("options")
    @classmethod
    def _knows(cls, value: dict[str, Option], info: ValidationInfo) -> dict[str, Option]:
        return _checked(value, SCHEDULE_OPTIONS.get(info.data.get("name", "")))


class ModuleParameters(Strict):
    """How a TrainingModule is trained; a recipe's parameters derive from it."""

    epochs: int = Field(10, ge=1, le=1_000_000, description="Number of passes over the examples.")
    accumulation: int = Field(
        1, ge=1, le=10_000, description="Number of batches per optimizer step."
    )
    max_grad_norm: float | None = Field(
        None, gt=0, description="Maximum gradient norm for clipping; no clipping by default."
    )
    max_grad_value: float | None = Field(
        None, gt=0, description="Maximum of each gradient's absolute value; no limit by default."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32",
        description="Precision of the forward pass; bf16 and fp16 by autocast, fp16 on GPUs only.",
    )
    compile: bool = Field(False, description="Compile the models with torch.compile.")
    ema_decay: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Decay of an exponential moving average of the weights, which is validated "
        "instead of them; no average by default.",
    )
    validate_every_epochs: int = Field(
        1, ge=1, description="Epochs between validations (without validate_every_steps only)."
    )
    validate_every_steps: int | None = Field(
        None,
        ge=1,
        le=MAX_STEPS,
        description="Optimizer steps between validations; by default epochs are counted.",
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="Validations without improvement before training stops; never by default.",
    )
    stopping_metric: str = Field(
        "val_loss", max_length=64, description="Validation metric of early stopping."
    )
    stopping_mode: Literal["min", "max"] = Field(
        "min", description="Whether lower (min) or higher (max) values of that metric are better."
    )

    @field_validator("max_grad_value")
    @classmethod
    def _clips_once(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("max_grad_norm") is not None:
            raise ValueError("max_grad_norm is given, too; allowed: one of them")
        return value


class IngredientsParameters(ModuleParameters):
    """How ingredients over datasets are trained; a recipe's parameters derive from it."""

    batch_size: int = Field(32, ge=1, le=1_000_000, description="Number of examples per batch.")
    num_workers: int = Field(0, ge=0, le=64, description="Processes that load batches.")
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
