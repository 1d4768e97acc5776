"""Where a check stops a run."""

import pytest

from trainops.checking.messages import StopPoint
from trainops.checking.plan import plan


def run_of(num_steps, epoch):
    """Return the safe points of a run whose epochs end with an evaluation of two parts."""
    points = [StopPoint(0)]
    for step in range(1, num_steps + 1):
        if step % epoch == 0:
            points += [StopPoint(step, True, step // epoch)] * 2
        points.append(StopPoint(step, False, step // epoch))
    return points


def test_the_stops_are_at_each_kind_of_place_and_twice_in_a_row():
    found = {case.name: [each.step for each in case.stops] for case in plan(run_of(20, 6)).cases}
    assert found == {
        "the first step": [1],
        "the second step": [2],
        "the end of an epoch": [6],
        "inside an epoch": [9],
        "a middle step": [10],
        "inside an evaluation": [12],
        "the last step": [19],
        "twice in a row": [2, 10],
    }


def test_one_place_is_tried_once_with_all_its_names():
    planned = plan([StopPoint(0), StopPoint(1), StopPoint(2), StopPoint(3)])
    assert [case.name for case in planned.cases] == [
        "the first step",
        "the second step, a middle step, inside an epoch, the last step",
    ]
    assert planned.not_reached == ("the end of an epoch",)
    assert planned.end == StopPoint(3)


def test_a_run_of_one_step_cannot_be_stopped():
    with pytest.raises(ValueError, match="a single step"):
        plan([StopPoint(0), StopPoint(1)])


def test_a_run_whose_last_step_has_two_safe_points_ends_at_the_second():
    end = StopPoint(2, is_over=True)
    planned = plan([StopPoint(0), StopPoint(1), StopPoint(2), end])
    assert planned.end == end
    assert [case.stops for case in planned.cases] == [(StopPoint(1),)]
    with pytest.raises(ValueError, match="a single step"):
        plan([StopPoint(0), StopPoint(1), StopPoint(1, is_over=True)])
