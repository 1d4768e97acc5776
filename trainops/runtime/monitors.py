"""Further monitored metrics: each has a mode, a best checkpoint and a best model of its own.

The fields `monitor` and `mode` of a config name one metric, `monitors` further ones. A job whose
config has some saves two things for each: in its JSON state under STATE_KEY the value that was
measured on the weights of this state (`metric`) and the best one so far (`best_metric`), both None
where there is none; and the best model as a part of its own, `part_of(metric)`.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import SerializerFunctionWrapHandler, field_validator, model_serializer
from pydantic_core.core_schema import ValidationInfo

from trainops.plain import Config
from trainops.runtime.config import Strict

Monitors: TypeAlias = dict[str, Literal["min", "max"]]  # the mode of each metric
STATE_KEY = "monitored"
BEST_MODEL = "best_model"
MAX_LENGTH = 53  # of a metric, so that its part can be the name of a file
METRIC = re.compile(rf"[A-Za-z][A-Za-z0-9_./-]{{0,{MAX_LENGTH - 1}}}")
DESCRIPTION = (
    "Further monitored metrics, each with min or max: whether lower or higher values are better. "
    "Each has a best checkpoint and a best model of its own; early stopping uses monitor only."
)
EXAMPLES: list[dict[str, str]] = [{"val_accuracy": "max"}]


class MonitorsConfig(Strict):
    """A config with the fields `monitor`, `mode` and `monitors`."""

    @field_validator("monitors", check_fields=False)
    @classmethod
    def _are_others(cls, value: Monitors, info: ValidationInfo) -> Monitors:
        """Return them in the order of their names: a database may return another one."""
        parts: dict[str, str] = {}
        if (monitor := info.data.get("monitor")) is not None:
            parts[part_of(monitor)] = monitor
        for metric in sorted(value):
            if not METRIC.fullmatch(metric):
                raise ValueError(f"{metric!r:.60} is no metric; allowed: {METRIC.pattern}")
            if (other := parts.get(part := part_of(metric))) == metric:
                raise ValueError(f"{metric} is monitor already; allowed: other metrics")
            if other is not None:
                problem = f"{metric} and {other} would both be saved as {part}.pt"
                raise ValueError(f"{problem}; allowed: metrics that differ in letters or digits")
            parts[part] = metric
        return {metric: value[metric] for metric in sorted(value)}

    @model_serializer(mode="wrap")
    def _without_empty(self, serialize: SerializerFunctionWrapHandler) -> Config:
        """Leave out `monitors` where it is empty: configs without it stay what they were."""
        found: Config = serialize(self)
        if not found.get("monitors", True):
            del found["monitors"]
        return found


def further(config: Mapping[str, object]) -> dict[str, str]:
    """Return the modes of the further metrics that a config (as JSON) monitors, by name."""
    found = config.get("monitors")
    return dict(sorted(found.items())) if isinstance(found, Mapping) else {}


def part_of(metric: str) -> str:
    """Return the name of the part of a state that is the best model by this metric."""
    return f"{BEST_MODEL}_{re.sub('[^a-z0-9_]', '_', metric.lower())}"


def measured(state: Mapping[str, object], metric: str) -> float | None:
    """Return what a further metric came to with the weights of this JSON state."""
    return _number(state, metric, "metric")


def best_ever(state: Mapping[str, object], metric: str) -> float | None:
    """Return the best value of a further metric in a JSON state; None: not known."""
    return _number(state, metric, "best_metric")


def _number(state: Mapping[str, object], metric: str, name: str) -> float | None:
    of_all = state.get(STATE_KEY)
    of_metric = of_all.get(metric) if isinstance(of_all, Mapping) else None
    found = of_metric.get(name) if isinstance(of_metric, Mapping) else None
    return float(found) if isinstance(found, int | float) else None
