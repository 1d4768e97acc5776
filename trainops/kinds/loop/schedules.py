"""In which order several loaders give their batches: a function of the seed and the pass."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal, TypeAlias, get_args

import torch

from trainops.kinds.loop.seeding import generator_of
from trainops.runtime.errors import InputError

Kind: TypeAlias = Literal["sequential", "round_robin", "alternating", "weighted"]
Length: TypeAlias = Literal["sum", "max", "min"] | int
Short: TypeAlias = Literal["cycle", "stop"]
LENGTHS = ("sum", "max", "min")
DRAWN_AT_ONCE = 1024


@dataclass(frozen=True)
class LoaderSchedule:
    """Which loader gives the next batch, and when a pass over all of them ends.

    `lengths` are the batches of one pass of each loader, None where that is not known. A pass over
    all ends after the batches of all loaders (`sum`), when each has given all of its own
    at least once (`max`), when one has (`min`), or after a number. A loader that has given all of
    its batches begins anew (`cycle`) or is left out (`stop`).
    """

    name: str
    kind: Kind
    length: Length
    short: Short
    lengths: Mapping[str, int | None]
    pattern: Sequence[str] = ()  # of `alternating`
    weights: Mapping[str, float] | None = None  # of `weighted`; by default all are equal

    def __post_init__(self) -> None:
        for what, given, allowed in (
            ("schedule", self.kind, get_args(Kind)), ("short", self.short, get_args(Short))
        ):  # fmt: skip
            if given not in allowed:
                self._refuse(f"{what} {given!r}", ", ".join(allowed))
        if not self.lengths:
            self._refuse("no loader", "at least one")
        if bool(self.pattern) != (self.kind == "alternating") or (
            self.pattern and set(self.pattern) != self.lengths.keys()
        ):
            self._refuse(f"schedule {self.kind} and pattern {list(self.pattern)}",
                         "for alternating a list that names each loader")  # fmt: skip
        self._require_weights()
        self._require_length()

    def describe(self) -> str:
        """Return everything that decides the order, for people and for comparison."""
        lengths = ", ".join(f"{name} of {each or '?'}" for name, each in self.lengths.items())
        more = f", pattern {' '.join(self.pattern)}" if self.pattern else ""
        if self.weights:
            more = ", weights " + ", ".join(f"{n} {float(w)}" for n, w in self.weights.items())
        return f"{self.kind}, length {self.length}, short {self.short}{more}: {lengths}"

    def num_items(self, seed: str) -> int:
        """Return the number of batches of a pass with this seed."""
        if isinstance(self.length, int):
            return self.length
        if self.length == "sum":
            return sum(each or 0 for each in self.lengths.values())
        return sum(1 for _ in self.names(seed))

    def names(self, seed: str) -> Iterator[str]:
        """Yield the loaders of a pass in turn."""
        given = dict.fromkeys(self.lengths, 0)
        picks = {"sequential": self._in_sequence, "weighted": self._by_weight}
        for name in picks.get(self.kind, self._in_turn)(seed, given):
            given[name] += 1
            yield name
            if self._is_over(given):
                return

    def _is_over(self, given: Mapping[str, int]) -> bool:
        if isinstance(self.length, int):
            return sum(given.values()) >= self.length
        if self.length == "sum":
            return sum(given.values()) >= sum(each or 0 for each in self.lengths.values())
        are_complete = (given[name] >= (each or 0) for name, each in self.lengths.items())
        return all(are_complete) if self.length == "max" else any(are_complete)

    def _has_more(self, name: str, given: Mapping[str, int]) -> bool:
        return self.short == "cycle" or given[name] < (self.lengths[name] or 0)

    def _in_sequence(self, seed: str, given: Mapping[str, int]) -> Iterator[str]:
        while True:  # the first of those that have given the fewest passes
            yield min(self.lengths, key=lambda name: given[name] // (self.lengths[name] or 1))

    def _in_turn(self, seed: str, given: Mapping[str, int]) -> Iterator[str]:
        for name in cycle(self.pattern or self.lengths):
            if self._has_more(name, given):
                yield name

    def _by_weight(self, seed: str, given: Mapping[str, int]) -> Iterator[str]:
        generator = generator_of(f"{seed}/schedule")
        weights = self.weights or dict.fromkeys(self.lengths, 1.0)
        while True:
            block = torch.rand(DRAWN_AT_ONCE, dtype=torch.float64, generator=generator)
            for drawn in block.tolist():
                names = [name for name in self.lengths if self._has_more(name, given)]
                yield _drawn(drawn, {name: weights[name] for name in names})

    def _require_weights(self) -> None:
        if self.weights is None:
            return
        is_sound = self.weights.keys() == self.lengths.keys() and all(
            0 < each < float("inf") for each in self.weights.values()
        )
        if self.kind != "weighted" or not is_sound:
            self._refuse(f"schedule {self.kind} and weights {dict(self.weights)}",
                         "for weighted a number above 0 for each loader")  # fmt: skip

    def _require_length(self) -> None:
        known = [each for each in self.lengths.values() if each is not None]
        is_known = len(known) == len(self.lengths)
        if isinstance(self.length, str):
            if self.length not in LENGTHS or not is_known:
                allowed = ", ".join(LENGTHS) if is_known else "where a loader has no length"
                self._refuse(f"length {self.length!r}", f"{allowed}, or a number from 1")
        elif type(self.length) is not int or self.length < 1:
            self._refuse(f"length {self.length!r}", f"{', '.join(LENGTHS)}, or a number from 1")
        elif self.short == "stop" and self.length > sum(known):
            self._refuse(f"length {self.length} and short 'stop'", f"up to {sum(known)}, or cycle")
        if not is_known and (self.short == "stop" or self.kind == "sequential"):
            self._refuse(f"short {self.short!r} and schedule {self.kind}, and a loader without "
                         "a length", "short 'cycle' and another schedule")  # fmt: skip

    def _refuse(self, given: str, allowed: str) -> None:
        raise InputError({"recipe": f"got {given} for {self.name!r}; allowed: {allowed}"})


def _drawn(number: float, weights: Mapping[str, float]) -> str:
    """Return the name that a number from 0 to 1 falls on."""
    left = number * sum(weights.values())
    for name, weight in weights.items():
        left -= weight
        if left < 0:
            return name
    return list(weights)[-1]  # the sum was rounded
