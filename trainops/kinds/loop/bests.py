"""What the monitored metrics of a loop came to, and the best models by each of them."""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainops.kinds.loop.config import LoopConfig
from trainops.runtime import monitors
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import StateDict

log = logging.getLogger(__name__)
NAMES = ("metric", "best_metric", "best_step")
Models = dict[str, Any]  # the states of all modules, by name


@dataclass(slots=True)
class BestStep:
    """The best value of one metric; None where none was finite."""

    metric: float | None = None  # of this step, if finite
    best_metric: float | None = None
    best_step: int | None = None
    model: Models | None = None

    def judge(self, value: float, step: int, mode: str) -> bool:
        """Return whether it is better than all before: of equals, the first stays."""
        sign = 1 if mode == "min" else -1
        self.metric = value if math.isfinite(value) else None
        best = self.best_metric
        if self.metric is None or (best is not None and sign * value >= sign * best):
            return False
        self.best_metric, self.best_step = value, step
        return True

    def to_state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in NAMES}


class Bests:
    """The best values by `monitor` and by each of `monitors`, and a copy of the models of each."""

    def __init__(self, config: LoopConfig) -> None:
        self._config = config
        self._modes = {config.monitor: config.mode, **config.monitors}
        self._of = {name: BestStep() for name in self._modes}
        further = {name: monitors.part_of(name) for name in config.monitors}
        self.parts = {config.monitor: monitors.BEST_MODEL, **further}  # of the state, by metric

    def judge(self, values: Mapping[str, float], step: int) -> list[str]:
        """Take what a step measured; return by which metrics it is the best so far."""
        for best in self._of.values():
            best.metric = None
        return [
            name
            for name, value in values.items()
            if self._of[name].judge(value, step, self._modes[name])
        ]

    def warn_if_unmeasured(self, measured: Iterable[str]) -> None:
        """Say in the log which metrics of the config have had no value so far."""
        default = LoopConfig.model_fields["monitor"].default
        if absent := [
            name
            for name, best in self._of.items()
            if name != default and best.best_metric is None and name not in measured
        ]:
            log.warning(
                "no value so far of the monitored %s; measured: %s",
                ", ".join(absent), ", ".join(sorted(measured)) or "nothing",
            )  # fmt: skip

    def keep(self, names: Iterable[str], models: Models) -> None:
        """Keep the models of this step, a copy, as the best by these metrics."""
        for name in names:
            self._of[name].model = models

    def models(self) -> StateDict:
        """Return the parts of a state."""
        models = {part: self._of[name].model for name, part in self.parts.items()}
        return {part: model for part, model in models.items() if model is not None}

    def to_state(self) -> dict[str, Any]:
        """Return the entries of the JSON state."""
        first, further = self._of[self._config.monitor], self._config.monitors
        lines = {name: self._of[name].to_state() for name in further}
        return {**first.to_state(), **({monitors.STATE_KEY: lines} if lines else {})}

    def from_state(self, state: StateDict) -> "Bests":
        """Return those of a state. Raises IncompatibleState."""
        found, plain = Bests(self._config), state["state"]
        lines = {**plain.get(monitors.STATE_KEY, {}), self._config.monitor: plain}
        if lines.keys() != found.parts.keys():
            saved, own = ", ".join(sorted(lines)), ", ".join(sorted(found.parts))
            raise IncompatibleState(f"the state monitors {saved}; the config {own}")
        for name, part in found.parts.items():
            model = copied(state[part]) if part in state else None
            line = {each: lines[name].get(each) for each in NAMES}
            found._of[name] = BestStep(**line, model=model)
        return found

    def result(self) -> dict[str, Any]:
        """Return the entries of the operation's result."""
        config = self._config
        of_first = {"metric": config.monitor, **self._line(config.monitor)}
        further = {name: self._line(name) for name in config.monitors}
        return {"best": of_first, **({monitors.STATE_KEY: further} if further else {})}

    def _line(self, name: str) -> dict[str, Any]:
        best = self._of[name]
        return {"mode": self._modes[name], "value": best.best_metric, "step": best.best_step}


def copied(value: Any) -> Any:
    """Return a copy on the CPU: an alias would follow the training."""
    if isinstance(value, Tensor):
        is_plain = type(value) is Tensor  # a divided one stays where its ranks are
        return value.detach().to("cpu", copy=True) if is_plain else value.detach().clone()
    if isinstance(value, Mapping):
        return {name: copied(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(each) for each in value)
    return value
