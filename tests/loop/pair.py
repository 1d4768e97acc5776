"""A training module of one or two networks, for tests: its settings are parameters."""

from typing import Literal

from pydantic import Field

from trainops.kinds.loop.settings import ModuleParameters, OptimizerSettings, ScheduleSettings
from trainops.recipes import Recipe


class Parameters(ModuleParameters):
    optimizers: int = 1
    num_workers: int = 0
    batch_size: int = 4
    examples: int = 22
    frozen_epochs: int = 0
    rare: bool = False
    is_ordered: bool = False
    is_validation_iterable: bool = False
    iterable: Literal["", "plain", "stateful"] = ""  # the examples of the training
    damaged: int = 0  # examples at the end of the data that cannot be decoded
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    second_schedule: ScheduleSettings = ScheduleSettings()
    checkpointing: bool = False
    is_measured: bool = False  # by torchmetrics, too
    steps: list[str] = Field(default_factory=list)


RECIPE = Recipe(
    name="pair",
    kind="loop",
    label="Pair",
    description="For tests",
    parameters="tests.loop.pair:Parameters",
    build="tests.loop.pair_module:train",
    example={"recipe": "pair", "threads": 1},
)
