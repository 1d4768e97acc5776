"""What a study tries: sets of values for a config, and spans of time to try them in. Pure."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from trainops.runtime.config import Strict

MAX_OPERATIONS = 500  # of one study
Values = dict[str, Any]  # by dotted path in the config


class Range(Strict):
    """Numbers to draw from."""

    low: float
    high: float
    log: bool = Field(False, description="Drawn so that each factor is as likely as any other")
    whole: bool = Field(False, description="Whole numbers, both ends included")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.log and self.low <= 0:
            raise ValueError("with log, low must be above 0")
        return self

    def draw(self, dice: random.Random) -> float | int:
        if self.log:
            drawn = math.exp(dice.uniform(math.log(self.low), math.log(self.high)))
        else:
            drawn = dice.uniform(self.low, self.high)
        drawn = min(max(drawn, self.low), self.high)
        return round(drawn) if self.whole else drawn


class WalkForward(Strict):
    """A backtest's series in folds: values are chosen on one span, and tried on the next."""

    folds: int = Field(4, ge=1, le=50, description="Spans to try what was chosen on")
    in_sample: float = Field(
        0.75, ge=0.1, le=0.95, description="Of a fold: the share that values are chosen on"
    )
    anchored: bool = Field(False, description="Every fold begins with the first day")


class Design(Strict):
    """Which values are tried: all together (grid), or drawn at random."""

    values: dict[str, list[Any] | Range] = Field(
        description="By dotted path in the config: values, or for random a range", max_length=10
    )
    method: Literal["grid", "random"] = "grid"
    samples: int = Field(20, ge=1, le=MAX_OPERATIONS, description="Random: so many sets")
    seed: int = Field(0, ge=0, description="Random: where the numbers start")
    walk_forward: WalkForward | None = None

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if not self.values:
            raise ValueError("at least one path needs values")
        for path, values in self.values.items():
            if isinstance(values, Range) and self.method == "grid":
                raise ValueError(f"{path}: a grid needs values; a range is for random")
            if isinstance(values, list) and not values:
                raise ValueError(f"{path}: no value is given")
        return self

    def sets(self) -> list[Values]:
        """Return each set of values once. Raises TooMany."""
        made = self._grid() if self.method == "grid" else self._drawn()
        found: list[Values] = []
        for each in made:
            if each not in found:
                found.append(each)
            if len(found) > MAX_OPERATIONS:
                raise TooMany(self.num_combinations)
        return found

    @property
    def num_combinations(self) -> int:
        return math.prod(len(each) for each in self.values.values() if isinstance(each, list))

    def _grid(self) -> Iterator[Values]:
        lists = [each for each in self.values.values() if isinstance(each, list)]
        for chosen in itertools.product(*lists):
            yield dict(zip(self.values, chosen, strict=True))

    def _drawn(self) -> Iterator[Values]:
        dice = random.Random(self.seed)  # noqa: S311 - a design, not a secret
        for _ in range(self.samples):
            yield {
                path: each.draw(dice) if isinstance(each, Range) else dice.choice(each)
                for path, each in self.values.items()
            }


class TooMany(ValueError):
    """A study of more operations than one may have."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{number} operations; at most {MAX_OPERATIONS}")


@dataclass(frozen=True, slots=True)
class Fold:
    """Days of one fold: values are chosen on [start, split), and tried on [split, end)."""

    number: int  # from 1
    start: date
    split: date
    end: date

    def config(self, *, is_test: bool) -> Values:
        """Return what a backtest on one of the two spans is told."""
        start, until = (self.split, self.end) if is_test else (self.start, self.split)
        return {"start": start.isoformat(), "until": until.isoformat()}


def folds(plan: WalkForward, first: date, last: date) -> list[Fold]:
    """Return the folds over the days from `first` to `last`, both included.

    The tried spans follow one another without a gap, up to the last day. Raises ValueError where
    one would be shorter than a day.
    """
    days = (last - first).days + 1
    ratio = plan.in_sample / (1 - plan.in_sample)  # of chosen on to tried on, in the first fold
    tried = days / (plan.folds + ratio)
    if tried < 1 or tried * ratio < 1:
        raise ValueError(f"{plan.folds} folds of {days} days: a span would be shorter than a day")
    begin = days - tried * plan.folds

    def day(offset: float) -> date:
        return first + timedelta(days=round(offset))

    return [
        Fold(
            number + 1,
            first if plan.anchored else day(number * tried),
            day(begin + number * tried),
            day(begin + (number + 1) * tried),
        )
        for number in range(plan.folds)
    ]


def put(config: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Return a config with these values in it; what was there is replaced."""
    made = dict(config)
    for path, value in values.items():
        _put(made, path.split("."), value)
    return made


def _put(config: dict[str, Any], names: Sequence[str], value: Any) -> None:
    name, *deeper = names
    if not deeper:
        config[name] = value
        return
    inner = config.get(name)
    config[name] = dict(inner) if isinstance(inner, Mapping) else {}
    _put(config[name], deeper, value)
