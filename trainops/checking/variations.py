"""Run a recipe undisturbed once more, under other circumstances, and find which of them matters."""

import time

from trainops.checking.causes import Cause, unstable
from trainops.checking.messages import Attempted, StopPoint
from trainops.checking.report import Tried
from trainops.checking.runner import PLAIN, Circumstances, Runner

SHIFT_SECONDS = 40 * 86_400.0  # of the other clock: another day and another month
NAME = "a second run, with another hash seed and another clock"


class Variations:
    """Undisturbed runs under other circumstances, compared with `whole`."""

    def __init__(self, runner: Runner, whole: Attempted, end: StopPoint) -> None:
        self._runner, self._whole, self._end = runner, whole, end
        self.is_repeatable = True  # two runs of one hash seed and the real clock are equal
        clock = time.time() + SHIFT_SECONDS
        self._hash, self._time = Circumstances(has_other_hash_seed=True), Circumstances(clock=clock)
        self._both = Circumstances(has_other_hash_seed=True, clock=clock)

    def run(self) -> tuple[Tried, list[Cause]]:
        """Return the comparison, and what the result depends on."""
        other = self._undisturbed(self._both)
        differs = self._runner.differences(self._whole, [other])
        return Tried(NAME, differs=differs), self._causes(other) if differs else []

    def _causes(self, other: Attempted) -> list[Cause]:
        if self._differs(self._whole, self._undisturbed(PLAIN)):
            self.is_repeatable = False
            return self._causes_of_noise(other)
        found = []
        for circumstances, finding in ((self._hash, _of_hash), (self._time, _of_clock)):
            if self._differs(self._whole, self._undisturbed(circumstances)):
                found.append(finding(self._unstable(PLAIN, circumstances)))
        return found or [_unseeded([])]

    def _causes_of_noise(self, other: Attempted) -> list[Cause]:
        """Return why two runs differ that nothing was changed for: by the clock, or by chance."""
        one, repeated = self._undisturbed(self._time), self._undisturbed(self._time)
        if self._differs(one, repeated):
            return [_unseeded(self._unstable(PLAIN, PLAIN))]
        found = [_of_clock(self._unstable(PLAIN, self._time))]
        if self._differs(one, other):
            found.append(_of_hash(self._unstable(self._time, self._both)))
        return found

    def _differs(self, one: Attempted, other: Attempted) -> bool:
        return bool(self._runner.differences(one, [other]))

    def _undisturbed(self, circumstances: Circumstances) -> Attempted:
        return self._runner.attempt(stop=self._end, circumstances=circumstances)

    def _unstable(self, one: Circumstances, other: Circumstances) -> list[str]:
        """Return the values that differ first between runs under these circumstances."""
        first = next(each for each in self._whole.points if each.step and not each.is_evaluating)
        runs = [
            self._runner.attempt(stop=first, circumstances=each, graph_steps=(0, first.step))
            for each in (one, other)
        ]
        return unstable(runs[0].graphs, runs[1].graphs)


def _of_hash(subjects: list[str]) -> Cause:
    return Cause(
        "hash_order", ", ".join(subjects),
        "The result depends on PYTHONHASHSEED, which workers set to 0 and other programs do not: "
        f"on the order of a set, or on hash() of a text{_seen_in(subjects)}",
        "Sort what comes from a set (sorted(...)), and use hashlib instead of hash().",
    )  # fmt: skip


def _of_clock(subjects: list[str]) -> Cause:
    return Cause(
        "clock", ", ".join(subjects),
        f"The result depends on the clock{_seen_in(subjects)}",
        "Make the time a parameter, or derive the value from the seed and the step.",
    )  # fmt: skip


def _unseeded(subjects: list[str]) -> Cause:
    return Cause(
        "unseeded", ", ".join(subjects),
        f"Two undisturbed runs of the same config differ{_seen_in(subjects)}",
        "Seed each generator from the seed of the operation (run.seed, context.seed). os.urandom, "
        "uuid4, id(), changing files and threads in varying order are not repeatable.",
    )  # fmt: skip


def _seen_in(subjects: list[str]) -> str:
    return f" (first seen in {', '.join(subjects)})" if subjects else ""
