"""What a check found, as text and as JSON."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from trainops.checking.causes import Cause
from trainops.checking.messages import StepTimes
from trainops.plain import JsonObject


@dataclass(frozen=True, slots=True)
class Tried:
    """One run and whether it ended as the undisturbed one did. differs: where it did not."""

    name: str
    stops: tuple[int, ...] = ()
    differs: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.differs


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds per step; checkpoints every `every_steps` steps where there are some."""

    measured: StepTimes
    num_steps: int
    every_steps: int


@dataclass(slots=True)
class CheckReport:
    """The result of a check."""

    recipe: str
    kind: str
    unit: str
    processes: int = 1  # that compute each run
    steps: int = 0  # of the undisturbed run
    total_steps: int = 0  # 0: it was cut
    tried: list[Tried] = field(default_factory=list)
    findings: list[Cause] = field(default_factory=list)
    warnings: list[Cause] = field(default_factory=list)  # what had no effect so far
    uncertain: Mapping[str, str] = field(default_factory=dict)  # why, by the part of the job
    not_reached: tuple[str, ...] = ()
    cost: Cost | None = None

    @property
    def is_exact(self) -> bool:
        """Whether every run ended as the undisturbed one did, bit for bit."""
        return not self.findings and all(each.is_equal for each in self.tried)

    def to_json(self) -> JsonObject:
        values: JsonObject = {
            "recipe": self.recipe,
            "kind": self.kind,
            "exact": self.is_exact,
            "processes": self.processes,
            "steps": self.steps,
            "is_whole_run": bool(self.total_steps),
            "runs": [{"name": each.name, "stops": list(each.stops), "equal": each.is_equal,
                      "differs": list(each.differs)} for each in self.tried],
            "findings": [asdict(each) for each in self.findings],
            "warnings": [asdict(each) for each in self.warnings],
            "uncertain": dict(self.uncertain),
            "not_reached": list(self.not_reached),
        }  # fmt: skip
        if self.cost is not None:
            measured = asdict(self.cost.measured)
            values["milliseconds_per_step"] = {name: list(each) for name, each in measured.items()}
            values["checkpoint_every_steps"] = self.cost.every_steps
        return values

    def __str__(self) -> str:
        return "\n".join([*self._verdict(), *self._found(), *self._notes()])

    def _verdict(self) -> list[str]:
        rest = "the complete run" if self.total_steps else "the rest of the run is not checked"
        ranks = f", {self.processes} processes" if self.processes > 1 else ""
        lines = [f"{self.recipe} ({self.kind}{ranks}): {self.steps} {self.unit}s; {rest}", ""]
        for each in self.tried:
            word = "equal" if each.is_equal else "DIFFERS"
            lines.append(f"  {word:<8} {_run_of(each, self.unit)}")
            lines += [f"           {where}" for where in each.differs]
        exact = "Equal, but not certain" if self.uncertain else "Exact"
        verdict = f"{exact}: every run has the same checkpoint, curves and result, bit for bit."
        return [*lines, "", verdict if self.is_exact else "Not exact."]

    def _found(self) -> list[str]:
        lines = []
        if self.warnings:
            lines += ["", "Differs after a resume, with no effect on the compared steps:"]
        for number, each in enumerate([*self.findings, *self.warnings], 1):
            lines += ["", f"{number}. {each.problem}.", f"   {each.remedy}"]
        return lines

    def _notes(self) -> list[str]:
        lines = []
        if self.uncertain:
            lines += ["", "Not covered: state or randomness that no resume is certain to restore."]
            lines += [f"  {part}: {why}." for part, why in self.uncertain.items()]
        if self.not_reached:
            reached = ", ".join(self.not_reached)
            lines += ["", f"Not reached, so not checked: {reached}. Use a larger --max-steps."]
        return lines if self.cost is None else [*lines, "", *_cost_lines(self.cost, self.unit)]


def _run_of(tried: Tried, unit: str) -> str:
    if not tried.stops:
        return tried.name
    steps = " and ".join(map(str, tried.stops))
    return f"stopped at {unit} {steps} ({tried.name}) and resumed"


def _cost_lines(cost: Cost, unit: str) -> list[str]:
    bare = statistics.median(cost.measured.bare)
    rows = (
        ("the same calls without the loop of trainops", cost.measured.bare),
        ("in its loop, no checkpoints", cost.measured.runner),
        (f"in its loop, a checkpoint every {cost.every_steps} {unit}s", cost.measured.saving),
    )
    lines = [f"Milliseconds per {unit}, median of {len(cost.measured.bare)} (lowest to highest):"]
    return [*lines, *(_cost_line(name, times, bare) for name, times in rows)]


def _cost_line(name: str, times: Sequence[float], bare: float) -> str:
    median = statistics.median(times)
    share = f", {median / bare:.2f} x without" if times and bare and median != bare else ""
    return f"  {name:<52} {median:.3f} ({min(times):.3f} to {max(times):.3f}){share}"
