"""Config of operations that run a training loop."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator

from trainops.kinds.loop.kind import LENGTHS
from trainops.kinds.loop.other_ranks import change, change_of_nodes
from trainops.learning.limits import LearningLimitsConfig
from trainops.media.names import SYSTEM
from trainops.recipe_config import RecipeConfig
from trainops.runtime.config import (
    CheckpointConfig,
    NodeRange,
    OperationConfig,
    differences,
)
from trainops.runtime.errors import ConfigError
from trainops.runtime.monitors import DESCRIPTION, Monitors, MonitorsConfig

SCHEDULES = (
    "Schedules of torch keep the length that they were built for: after it CosineAnnealingLR rises "
    "again, and OneCycleLR ends with an error. Schedules of transformers (linear, cosine) have the "
    "rates of the longer training after the next step."
)
RANKS = frozenset({"processes", "nodes", "min_nodes", "sharding"})


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

    def continues(self, before: OperationConfig, *, may_be_exact: bool = True) -> Sequence[str]:
        values = {name: value for name, _, value in differences(before, self)}
        fields = {name for name in values if name.partition(".")[0] not in self.NEUTRAL}
        of_ranks = self._continues_on_ranks(before) if isinstance(before, LoopConfig) else []
        others = [*(fields - RANKS)]
        if of_ranks and not others:
            return of_ranks
        if len(others) != 1 or others[0] not in LENGTHS:
            return [*of_ranks, *super().continues(before, may_be_exact=may_be_exact)]
        length = f"{others[0]} {values[others[0]]}"
        if of_ranks or not may_be_exact:
            return [*of_ranks, f"It runs to {length}.", SCHEDULES]
        longer = f"It ends with the weights of a loop submitted with {length}"
        return [f"{longer}, unless its learning-rate schedule depends on the length.", SCHEDULES]

    def _continues_on_ranks(self, before: "LoopConfig") -> list[str]:
        """Return sentences on another number of ranks, another sharding and other nodes."""
        was, now = before.processes * before.nodes, self.processes * self.nodes
        changes = change(was, now, was_divided=before._is_divided, is_divided=self._is_divided)
        how = "It continues, but not exactly" if changes else "It may not continue exactly"
        changes |= change_of_nodes(before.nodes, self.nodes)
        said = [f"{name} {text}." for name, text in changes.items()]
        sentences = [f"{how if not at else 'Also'}: {text}" for at, text in enumerate(said)]
        is_smaller = self.num_nodes.smallest < min(before.num_nodes.smallest, self.nodes)
        fewer = f"An attempt on fewer than {self.nodes} nodes is not exact; its receipt says so."
        return [*sentences, *([fewer] if is_smaller else [])]

    @property
    def _is_divided(self) -> bool:
        return self.sharding != "none" and self.processes * self.nodes > 1

    @property
    def num_processes(self) -> int:
        return self.processes

    @property
    def num_nodes(self) -> NodeRange:
        return NodeRange(self.nodes if self.min_nodes is None else self.min_nodes, self.nodes)
