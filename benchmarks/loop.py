"""What the loop itself costs per step, against the same job in a bare `for` loop.

The job waits in a tight loop for a given time, and measures the pauses between its steps: what is
done in them is the loop's. Both are driven in the same process, in turns, so that a busy machine
disturbs both alike. The loop is measured without safe points (its own cost) and with them (what a
run has by default: at most 0.5 % of the time goes into keeping a frozen state at hand).
"""

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch

from trainops.runtime.checkpoint.store import Checkpoint, CheckpointPolicy, CheckpointStore
from trainops.runtime.job import Metrics, Progress, StateDict
from trainops.runtime.loop import Directive, Succeeded, run
from trainops.runtime.receipt import Receipt

GOAL_MICROSECONDS = 5.0
ROUNDS = 7
STEPS = {20e-6: 20_000, 1e-3: 1_000, 20e-3: 50}  # seconds a step -> steps in a round
LOOPS = {"loop": 0.0, "loop and safe points": 0.005}


class WaitingJob:
    """Keeps the processor busy for the same time at every step."""

    unit: ClassVar[str] = "step"
    place = "somewhere"

    def __init__(self, step_seconds: float, total_steps: int) -> None:
        self.step = 0
        self.total_steps = total_steps
        self.step_seconds = step_seconds
        self.weights = torch.zeros(1000)
        self._paused_seconds = 0.0
        self._left_at = 0.0

    @property
    def pause_microseconds(self) -> float:
        """The mean pause between two steps."""
        return self._paused_seconds / (self.total_steps - 1) * 1e6

    def advance(self) -> Metrics:
        entered_at = time.perf_counter()
        if self.step:
            self._paused_seconds += entered_at - self._left_at
        until = entered_at + self.step_seconds
        while time.perf_counter() < until:
            pass
        self.step += 1
        self._left_at = time.perf_counter()
        return {}

    def state_dict(self) -> StateDict:
        return {"state": {"step": self.step}, "model": self.weights}

    def load_state_dict(self, state: StateDict) -> None:
        self.step = state["state"]["step"]

    def result(self) -> dict[str, Any]:
        return {}


class Silent:
    """A supervisor that lets everything pass."""

    def restored(self, receipt: Receipt) -> None:
        """Nothing to do."""

    def report(self, progress: Progress) -> Directive:
        return Directive.PROCEED

    def corrupted(self, candidate: Any, error: Any) -> None:
        raise AssertionError

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        """Only the final one comes, after the last step."""

    def save_failed(self, error: Any) -> None:
        raise AssertionError


def main() -> dict[str, Any]:
    """Print the table, and return its figures in microseconds a step."""
    rows = [_measure(seconds, steps) for seconds, steps in STEPS.items()]
    print(f"The loop's cost in µs a step (goal: {GOAL_MICROSECONDS:g}), {ROUNDS} rounds in turns")
    print(f"{'step':>10} {'variant':<22} {'median':>9} {'lowest':>9} {'highest':>9}")
    for row in rows:
        for name in LOOPS:
            low, middle, high = row[name]
            step = f"{row['step_microseconds']:,.0f} µs"
            print(f"{step:>10} {name:<22} {middle:9.2f} {low:9.2f} {high:9.2f}")
    return {"name": "loop", "goal_microseconds": GOAL_MICROSECONDS, "rows": rows}


def _measure(step_seconds: float, steps: int) -> dict[str, Any]:
    """Return for each variant the lowest, median and highest cost over the rounds."""
    costs: dict[str, list[float]] = {name: [] for name in LOOPS}
    for _ in range(ROUNDS):
        bare = _bare(WaitingJob(step_seconds, steps))
        for name, share in LOOPS.items():
            costs[name].append(_looped(WaitingJob(step_seconds, steps), share) - bare)
    spread = {name: (min(each), median(each), max(each)) for name, each in costs.items()}
    return {"step_microseconds": step_seconds * 1e6, "steps": steps, "rounds": ROUNDS, **spread}


def _bare(job: WaitingJob) -> float:
    for _ in range(job.total_steps):
        job.advance()
    return job.pause_microseconds


def _looped(job: WaitingJob, safe_point_share: float) -> float:
    with tempfile.TemporaryDirectory() as directory:
        outcome = run(
            lambda: job,
            seed=0,
            store=CheckpointStore(Path(directory), identity={"operation_id": "bench"}),
            policy=CheckpointPolicy(every_steps=None, every_seconds=3600.0),
            supervisor=Silent(),
            safe_point_share=safe_point_share,
        )
    assert isinstance(outcome, Succeeded), outcome  # noqa: S101
    return job.pause_microseconds


if __name__ == "__main__":
    main()
