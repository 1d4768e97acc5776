"""Stop a recipe, resume it, and find out what the resume did not bring back."""

from collections.abc import Callable, Sequence

from trainops.checking.causes import Cause, forgotten, suspects
from trainops.checking.messages import Attempted, Graph, StopPoint
from trainops.checking.plan import Case, CheckPlan
from trainops.checking.report import Tried
from trainops.checking.runner import Runner

DRAWS = "draws"


class Stops:
    """The cases of a plan, compared with the undisturbed run `whole`."""

    def __init__(self, runner: Runner, whole: Attempted, plan: CheckPlan) -> None:
        self._runner, self._whole, self._plan = runner, whole, plan
        self._equal: list[tuple[StopPoint, list[Attempted]]] = []
        self._failed: list[tuple[StopPoint, list[Attempted]]] = []

    def run(self, tell: Callable[[str], None]) -> list[Tried]:
        """Run every case."""
        tried = []
        for case in self._plan.cases:
            tell(f"stop at {' and '.join(str(each.step) for each in case.stops)} ({case.name})")
            tried.append(self._tried(case))
        return tried

    def _tried(self, case: Case) -> Tried:
        attempts = self._runner.through([*case.stops, self._plan.end])
        differs = self._runner.differences(self._whole, attempts)
        differs += tuple(
            f"{part}: {why}" for each in attempts for part, why in each.inexact.items()
        )
        (self._failed if differs else self._equal).append((case.stops[0], attempts))
        return Tried(case.name, tuple(each.step for each in case.stops), differs)

    def causes(self) -> list[Cause]:
        """Return what was forgotten, by the first and the last of the cases that differed."""
        if not self._failed:
            return []
        found: dict[str, Cause] = {}
        guesses: dict[str, Cause] = {}
        for stop, attempts in self._inspected():
            graphs = self._graphs(stop, attempts)
            found |= {each.subject: each for each in forgotten(*graphs)}
            guesses |= {each.subject: each for each in suspects(*graphs)}
        causes = list(found.values()) or self._errors() or self._draws()
        return causes or list(guesses.values()) or [_unknown()]

    def warnings(self) -> list[Cause]:
        """Return what differs after the latest stop though every run is equal."""
        plain = [each for each in self._equal if not each[0].is_evaluating]
        if self._failed or not plain:
            return []
        return forgotten(*self._graphs(*max(plain, key=lambda each: each[0].step)))

    def _inspected(self) -> list[tuple[StopPoint, list[Attempted]]]:
        """Return the earliest and the latest of the stops after which something differed."""
        failed = sorted(self._failed, key=lambda each: (each[0].is_evaluating, each[0].step))
        return failed[:1] if len(failed) < 2 else [failed[0], failed[-1]]

    def _graphs(
        self, stop: StopPoint, attempts: Sequence[Attempted]
    ) -> tuple[Sequence[Graph], Sequence[Graph]]:
        """Describe an undisturbed and a resumed job, each after this step and after the next."""
        later = (each for each in self._whole.points
                 if each.step > stop.step and not each.is_evaluating)  # fmt: skip
        following = next(later, self._plan.end)
        steps = (stop.step, following.step)
        undisturbed = self._runner.attempt(stop=following, graph_steps=steps)
        resumed = self._runner.attempt(stop=following, after=attempts[0], graph_steps=steps)
        return undisturbed.graphs, resumed.graphs

    def _draws(self) -> list[Cause]:
        """Return which streams are drawn from in worker processes of loaders."""
        path = self._runner.directory / DRAWS
        self._runner.attempt(stop=self._plan.end, draws=path)
        lines = path.read_text().splitlines() if path.exists() else []
        pairs = dict.fromkeys(tuple(each.split("\t")) for each in lines)
        return [_of_draws(drawer, stream) for drawer, stream in pairs]

    def _errors(self) -> list[Cause]:
        errors = dict.fromkeys(
            each.error for _, attempts in self._failed for each in attempts if each.error
        )
        return [_of_error(each) for each in errors]


def _of_error(error: str) -> Cause:
    remedy = "The error names what the checkpoint and the recipe do not agree on."
    return Cause("error", "", f"A resumed run failed: {error}", remedy)


def _of_draws(drawer: str, stream: str) -> Cause:
    return Cause(
        "worker_randomness", drawer,
        f"{drawer} draws from {stream} global stream in a worker process of a loader, whose "
        "state no checkpoint holds",
        "Draw in the dataset (__getitem__) of run.loader, which is seeded by the number of the "
        "batch, or use num_workers=0.",
    )  # fmt: skip


def _unknown() -> Cause:
    return Cause(
        "unknown", "",
        "A resumed run differs, and no value that the recipe's objects lead to explains it",
        "State may be in a worker process of a loader, in a file, or in an object of a library. "
        "Compare the values above after a stop.",
    )  # fmt: skip
