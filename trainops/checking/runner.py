"""Starts the attempts of a check, and compares how they ended."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainops.checking.messages import (
    Attempted,
    AttemptRequest,
    CheckedJob,
    CheckpointDifferences,
    Compare,
    Measure,
    StepTimes,
    StopPoint,
)
from trainops.checking.servers import NoAnswer, Servers

START_SECONDS = 300.0  # until a warm process has imported everything and has made a job
PATIENCE = 20.0  # time limit of a run, in times of the undisturbed run
MAX_PATHS = 4  # in a line


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What must not change a result: the hash seed of the process, and its clock."""

    has_other_hash_seed: bool = False
    clock: float | None = None  # None: the real one


PLAIN = Circumstances()


@dataclass(slots=True)
class Runner:
    """Runs attempts of one subject, each in a process of its own."""

    servers: Servers
    subject: CheckedJob
    directory: Path
    timeout_seconds: float = START_SECONDS
    _num_runs: int = field(default=0, init=False)

    def attempt(
        self,
        *,
        stop: StopPoint | None = None,
        after: Attempted | None = None,
        circumstances: Circumstances = PLAIN,
        graph_steps: tuple[int, ...] = (),
        draws: Path | None = None,
        max_steps: int = 2**62,
        max_seconds: float = float("inf"),
    ) -> Attempted:
        """Run one attempt from the start, or from the last checkpoint of an earlier one."""
        self._num_runs += 1
        request = AttemptRequest(
            self.subject, self.directory / f"run{self._num_runs}", self._num_runs, stop=stop,
            graph_steps=graph_steps, clock=circumstances.clock, draws=draws,
            max_steps=max_steps, max_seconds=max_seconds,
        )  # fmt: skip
        if after is not None and after.checkpoint is not None:
            directory = after.checkpoint.path.parent
            request = replace(request, directory=directory, candidate=after.checkpoint,
                              entries=after.entries)  # fmt: skip
        has_other = circumstances.has_other_hash_seed
        server = self.servers.second if has_other else self.servers.first
        try:
            return server.call(request, Attempted, self.timeout_seconds)
        except NoAnswer as error:
            return Attempted(ending="failed", error=f"the process gave no result: {error}")

    def through(self, stops: Sequence[StopPoint]) -> list[Attempted]:
        """Stop at each of these points in turn, each time in a new process."""
        attempts: list[Attempted] = []
        for stop in stops:
            attempts.append(self.attempt(stop=stop, after=attempts[-1] if attempts else None))
            if attempts[-1].ending == "failed":
                break
        return attempts

    def measure(self, until: int, every_steps: int, repeats: int) -> StepTimes:
        """Raises NoAnswer."""
        request = Measure(self.subject, self.directory / "cost", until, every_steps, repeats)
        return self.servers.first.call(request, StepTimes, self.timeout_seconds)

    def differences(self, whole: Attempted, attempts: Sequence[Attempted]) -> tuple[str, ...]:
        """Return where the last of these attempts differs from the undisturbed run."""
        last = attempts[-1]
        if last.ending == "failed":
            return (f"failed: {last.error}",)
        if last.step != whole.step:
            return (f"ends at step {last.step} instead of {whole.step}",)
        found = [*self._of_files(whole, last), *_of_curves(whole, attempts)]
        if _plain(last.result) != _plain(whole.result):
            found.append("result: differs")
        return tuple(found)

    def _of_files(self, whole: Attempted, last: Attempted) -> Iterator[str]:
        if whole.files == last.files or whole.checkpoint is None or last.checkpoint is None:
            return
        request = Compare(whole.checkpoint, last.checkpoint)
        paths = self.servers.first.call(request, CheckpointDifferences, self.timeout_seconds).paths
        if paths:
            more = f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else ""
            yield f"checkpoint: {', '.join(paths[:MAX_PATHS])}{more}"


def _of_curves(whole: Attempted, attempts: Sequence[Attempted]) -> Iterator[str]:
    """Yield each metric and the first step at which it differs."""
    merged: dict[int, Mapping[str, float]] = {}
    for each in attempts:
        merged |= each.curve
    first: dict[str, int] = {}
    for step in sorted(whole.curve.keys() | merged.keys()):
        one, other = whole.curve.get(step, {}), merged.get(step, {})
        for name in sorted(one.keys() | other.keys()):
            if repr(one.get(name)) != repr(other.get(name)):
                first.setdefault(name, step)
    if first:
        yield "curves: " + ", ".join(f"{name} from step {step}" for name, step in first.items())


def _plain(result: str) -> str:
    return repr(json.loads(result)) if result else ""
