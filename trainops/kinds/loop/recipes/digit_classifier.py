"""Handwritten digits by a training module: an example to copy; see digit_classifier_module."""

from pydantic import Field

from trainops.kinds.loop.settings import ModuleParameters, OptimizerSettings, ScheduleSettings
from trainops.recipes import Recipe


class Parameters(ModuleParameters):
    batch_size: int = Field(32, ge=1, le=1024, description="Number of examples per batch.")
    width: int = Field(64, ge=1, le=4096, description="Number of hidden units.")
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings(name="CosineAnnealingLR")


RECIPE = Recipe(
    name="digit_classifier",
    kind="loop",
    label="Handwritten digits, module",
    description="Classifies the 8 x 8 digits of scikit-learn by a module; trainops owns the loop",
    parameters="trainops.kinds.loop.recipes.digit_classifier:Parameters",
    build="trainops.kinds.loop.recipes.digit_classifier_module:train",
    example={"recipe": "digit_classifier", "parameters": {"epochs": 30}, "threads": 1},
)
