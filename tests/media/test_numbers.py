"""Numbers that are logged in a step: equal points, wherever an operation of any kind is stopped."""

import pytest

from tests.engines.contract import (
    CASES,
    evaluations,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    require_stops_in_evaluations_change_nothing,
    undisturbed,
)
from trainops import log
from trainops.kind import Kind
from trainops.runtime.job import is_evaluating

ONE_OF_EACH_KIND = {case.kind: case for case in reversed(CASES)}.values()


@pytest.fixture
def logging_jobs(monkeypatch):
    """Have the jobs of all kinds log numbers: at each advance, and in the parts of evaluations."""
    make = Kind.job_factory

    def job_factory(*given):
        return lambda: logging(make(*given)())

    monkeypatch.setattr(Kind, "job_factory", job_factory)


def logging(job):
    advance, parts = job.advance, 0

    def logging_advance():
        nonlocal parts
        if is_evaluating(job):
            parts += 1
            log("part", parts)
            log("own/mixed", -job.step)
            return advance()
        parts = 0
        before = job.step
        log("own/mixed", before)
        points = advance()
        log("own/step", job.step)
        log("own/half", job.step / 2 if before % 3 else float("inf"))
        return points

    job.advance = logging_advance
    return job


@pytest.mark.slow
@pytest.mark.usefixtures("logging_jobs")
@pytest.mark.parametrize("case", ONE_OF_EACH_KIND, ids=str)
def test_stops_deaths_and_stops_in_evaluations_change_no_point(case, tmp_path):
    whole = undisturbed(case, tmp_path)
    steps = [step for step, values in whole.curve.items() if values.get("own/step") == step]
    assert steps == list(range(1, whole.progress[-1].step + 1))
    require_stop_changes_nothing(case, tmp_path / "stops", whole, case.stops)
    at = case.stops[0] + 1
    require_death_changes_nothing(case, tmp_path / "death", whole, at=at, every_steps=2)
    if found := evaluations(whole):
        assert any(values.get("part") for values in whole.curve.values())
        require_stops_in_evaluations_change_nothing(case, tmp_path / "parts", whole, found)
