"""Limits of kinds that train."""

from typing import ClassVar, Literal

from pydantic import Field

from trainops.runtime.config import LimitsConfig
from trainops.runtime.durations import SECONDS


class LearningLimitsConfig(LimitsConfig):
    """Limits of a training, whose length may also be given in epochs or batches."""

    UNITS: ClassVar[tuple[str, ...]] = ("ep", "ba", *SECONDS)

    max_duration: str | None = Field(
        None,
        description="Maximum length: 10ep (epochs) or 500ba (batches), after which the training "
        "completes, or a total time of all attempts such as 2h, 30m or 90s; unlimited by default.",
    )
    exploding_norm: float | None = Field(
        None,
        gt=0,
        description="Maximum gradient norm before clipping (only where gradients are clipped by "
        "norm); unlimited by default.",
    )
    on_exploding_norm: Literal["fail", "warn"] = Field(
        "fail",
        description="Whether a step with a larger norm fails the training (fail) or is logged "
        "(warn).",
    )
