"""The jobs of walks and of one walk."""

import math
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.further_kind.walks.config import WalksConfig
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import Metrics, StateDict
from trainops.runtime.subtasks import Subtask, SubtaskPort, SubtaskResult


class WalksJob:
    """One step is a stage. The walks of a stage are subtasks if there is a port."""

    unit: ClassVar[str] = "stage"

    def __init__(
        self,
        config: WalksConfig,
        inputs: Mapping[str, Path],
        subtasks: SubtaskPort | None = None,
    ) -> None:
        self.config, self.step, self.value = config, 0, 0.5
        self.subtasks = subtasks if config.is_distributed else None
        self._started: int | None = None  # the stage whose walks were started
        self._requested: set[int] = set()  # stages for which a checkpoint was requested
        self._results: dict[int, SubtaskResult] = {}

    @property
    def total_steps(self) -> int:
        return self.config.stages

    @property
    def place(self) -> str:
        return f"stage {self.step} of {self.config.stages}"

    def milestones(self) -> int:
        """Return the number of checkpoints that walks start from."""
        return len(self._requested)

    def advance(self) -> Metrics:
        port = self.subtasks
        ends = self._walked() if port is None else self._received(port)
        if ends is None:
            return {}
        self.value = sum(ends) / len(ends)
        self.step += 1
        return {"value": self.value}

    def _planned(self) -> list[Subtask]:
        moves = self.config.moves
        return [
            Subtask(self.step, walk, {"scale": walk + 1}, moves, self.value.hex(), f"walk {walk}")
            for walk in range(self.config.walks)
        ]

    def _walked(self) -> Sequence[float]:
        walks = [Walk(self.config, each, self.value) for each in self._planned()]
        return [walk.to_its_end() for walk in walks]

    def _received(self, port: SubtaskPort) -> Sequence[float] | None:
        """Return the ends in the order of the walks; None if one is missing."""
        if self._started != self.step:
            if port.saved_step is None or port.saved_step < self.step:
                self._requested.add(self.step)
                port.results(0.05)
                return None
            port.start(self._planned())
            self._started, self._results = self.step, {}
        for each in port.results(0.5):
            if each.group == self.step:
                self._results[each.index] = each
        if len(self._results) < self.config.walks:
            return None
        return [_end_of(self._results[walk]) for walk in range(self.config.walks)]

    def state_dict(self) -> StateDict:
        return {"state": {"stage": self.step, "value": self.value}}

    def load_state_dict(self, state: StateDict) -> None:
        self.step, self.value = state["state"]["stage"], state["state"]["value"]

    def result(self) -> Mapping[str, Any]:
        return {"value": self.value}


class Walk:
    """The moves of one walk, each a function of the seed and of its number."""

    def __init__(self, config: WalksConfig, subtask: Subtask, value: float) -> None:
        self.config, self.subtask, self.value, self.moved = config, subtask, value, 0

    def move(self) -> None:
        time.sleep(self.config.move_seconds)
        place = (self.config.seed, self.subtask.group, self.subtask.index, self.moved)
        drawn = random.Random(str(place)).random()  # noqa: S311
        self.value = math.sin(self.value * self.subtask.spec["scale"] + drawn)
        self.moved += 1

    def to_its_end(self) -> float:
        while self.moved < self.subtask.num_steps:
            self.move()
        return self.value


class WalkJob:
    """One walk: a step is a move."""

    unit: ClassVar[str] = "move"
    checkpoint_steps = 1

    def __init__(self, config: WalksConfig, inputs: Mapping[str, Path], subtask: Subtask) -> None:
        if subtask.given is None:
            raise ValueError("a walk requires a checkpoint of its stage")
        value = _loaded(subtask.given)["value"]
        if subtask.begins_with != value.hex():
            raise IncompatibleState("the checkpoint is of another stage")
        self.walk = Walk(config, subtask, value)

    @property
    def step(self) -> int:
        return self.walk.moved

    @property
    def total_steps(self) -> int:
        return self.walk.subtask.num_steps

    @property
    def place(self) -> str:
        return f"move {self.step} of {self.total_steps}"

    def advance(self) -> Metrics:
        self.walk.move()
        return {}

    def state_dict(self) -> StateDict:
        return {"state": {"move": self.walk.moved, "value": self.walk.value}}

    def load_state_dict(self, state: StateDict) -> None:
        self.walk.moved, self.walk.value = state["state"]["move"], state["state"]["value"]

    def result(self) -> Mapping[str, Any]:
        return {"value": self.walk.value}


def _end_of(result: SubtaskResult) -> float:
    if result.checkpoint is None:
        raise RuntimeError(f"walk {result.index}: {result.note or result.outcome}")
    return float(_loaded(result.checkpoint)["value"])


def _loaded(checkpoint: Candidate) -> Mapping[str, Any]:
    state = CheckpointStore(checkpoint.path.parent, identity={}).load(checkpoint)["state"]
    return dict(state)
