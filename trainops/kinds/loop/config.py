"""Config of operations that run a training loop."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator

from trainops.kinds.loop.kind import LENGTHS
from trainops.learning.limits import LearningLimitsConfig
from trainops.recipe_config import RecipeConfig
from trainops.runtime.config import (
    CheckpointConfig,
    NodeRange,
    OperationConfig,
    differences,
)
from trainops.runtime.errors import ConfigError
from trainops.runtime.monitors import DESCRIPTION, Monitors, MonitorsConfig
from trainops.runtime.throughput import SYSTEM

SCHEDULES = (
    "Schedules of torch keep the length that they were built for: after it CosineAnnealingLR rises "
    "again, and OneCycleLR ends with an error. Schedules of transformers (linear, cosine) have the "
    "rates of the longer training after the next step."
)


class LoopCheckpointConfig(CheckpointConfig):
    """When checkpoints are taken: after epochs, steps or seconds, whichever is first."""

    every_epochs: int = Field(10, ge=1, description="Epochs between checkpoints.")


class LoopConfig(MonitorsConfig, RecipeConfig):
    """A training loop and its parameters; the loop itself decides how it trains."""

    kind: ClassVar[str] = "loop"
    FORKABLE: ClassVar[frozenset[str]] = OperationConfig.FORKABLE | {
        "parameters", "log_every_steps", "processes", "nodes", "min_nodes", "sharding",
    }  # fmt: skip

    monitor: str = Field(
        "val_loss",
        pattern=r"^[A-Za-z][A-Za-z0-9_./-]{0,63}$",
        description="Yielded metric that selects the best checkpoint and model.",
    )
    mode: Literal["min", "max"] = Field(
        "min", description="Whether lower (min) or higher (max) values of the metric are better."
    )
    monitors: Monitors = Field(
        default_factory=dict, description=DESCRIPTION, examples=[{"accuracy": "max"}]
    )
    log_every_steps: int = Field(
        10, ge=1, description="Steps between points of a curve; a point is the mean since the last."
    )
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of processes that train together on each node; each takes a slot, "
        "and a GPU if it uses one.",
    )
    nodes: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of workers that train together, each with as many processes.",
    )
    min_nodes: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Minimum number of workers with which an attempt starts; by default nodes.",
    )
    sharding: Literal["none", "full"] = Field(
        "none",
        description="Division of models over the processes: none (each has the whole models) or "
        "full (each has a part of parameters and optimizer states, by FSDP2).",
    )
    checkpoint: LoopCheckpointConfig = LoopCheckpointConfig()
    limits: LearningLimitsConfig = LearningLimitsConfig()

    @field_validator("monitor", "monitors")
    @classmethod
    def _is_yielded(cls, value: str | Monitors) -> str | Monitors:
        names = [value] if isinstance(value, str) else value
        if any(name.startswith(SYSTEM) for name in names):
            raise ValueError(f"allowed: yielded metrics, whose names do not begin with {SYSTEM}")
        return value

    @classmethod
    def parse(cls, raw: Mapping[str, object]) -> Self:
        config = super().parse(raw)
        if config.min_nodes is not None and config.min_nodes > config.nodes:
            problem = f"got {config.min_nodes}; allowed: 1 to nodes ({config.nodes})"
            raise ConfigError({"min_nodes": problem})
        return config

    def continues(self, before: OperationConfig) -> Sequence[str]:
        changed = {name: value for name, _, value in differences(before, self)}
        steps = [name for name in changed if name.partition(".")[0] not in self.NEUTRAL]
        if len(steps) != 1 or steps[0] not in LENGTHS:
            return super().continues(before)
        longer = f"It ends with the weights of a loop submitted with {steps[0]} {changed[steps[0]]}"
        return [f"{longer}, unless its learning-rate schedule depends on the length.", SCHEDULES]

    @property
    def num_processes(self) -> int:
        return self.processes

    @property
    def num_nodes(self) -> NodeRange:
        return NodeRange(self.nodes if self.min_nodes is None else self.min_nodes, self.nodes)
