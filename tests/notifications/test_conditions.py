"""Conditions of alerts, point by point."""

import json
import math

import pytest

from apps.notifications.conditions import CONDITIONS, STEPS_PER_SECOND, AlertPoint, Settings


def notes(condition, settings, values, name="val_loss"):
    """Return the note after each value; the summary passes through JSON, as it is stored."""
    followed, summary, found = CONDITIONS[condition], {}, []
    for step, value in enumerate(values, 1):
        summary = followed.follow(settings, summary, AlertPoint(name, step, value))
        summary = json.loads(json.dumps(summary))
        found.append(followed.note(settings, summary))
    return found


@pytest.mark.parametrize(
    ("mode", "values", "raised"),
    [
        ("min", [3, 2, 2, 2.5, 1, 1], [0, 0, 0, 1, 0, 0]),
        ("max", [1, 2, 2, 1.5, 3, 3], [0, 0, 0, 1, 0, 0]),
        ("min", [1, math.nan, math.inf, 0.5], [0, 0, 1, 0]),
        ("min", [math.nan, math.nan, 7], [0, 1, 0]),
    ],
)
def test_a_plateau_is_n_points_without_a_better_one(mode, values, raised):
    found = notes("plateau", Settings("val_loss", mode, 2), values)
    assert [int(bool(note)) for note in found] == raised


def test_the_note_of_a_plateau_names_the_best_value():
    note = notes("plateau", Settings("val_loss", "min", 2), [0.5, 0.25, 0.3, 0.3])[-1]
    assert note == "val_loss is not better for 2 points; best: 0.25 at step 2"


@pytest.mark.parametrize("metric", ["", "val_loss"])
def test_a_value_that_is_not_finite_is_named_until_a_finite_one(metric):
    found = notes("not_finite", Settings(metric, "min", 1), [1.0, math.nan, math.inf, 2.0])
    since = "not finite: val_loss since step 2"
    assert found == ["", since, since, ""]


def test_the_throughput_has_halved_below_half_of_its_highest_mean():
    found = notes(
        "throughput_halved", Settings("", "min", 2), [1, 9, 11, 6, 4, 3, math.nan, 20],
        name=STEPS_PER_SECOND,
    )  # fmt: skip
    assert [bool(note) for note in found] == [False] * 5 + [True, True, False]
    assert found[5] == f"{STEPS_PER_SECOND} is 3.5, less than half of 10 (means of 2)"


@pytest.mark.parametrize("condition", CONDITIONS)
def test_other_metrics_do_not_count(condition):
    values = [8.0, math.nan, 1.0, 1.0, 1.0, 9.0]
    assert set(notes(condition, Settings("val_loss", "min", 2), values, name="x")) == {""}


def test_the_summary_does_not_grow():
    for condition, followed in CONDITIONS.items():
        settings, summary = Settings("m", "min", 5), {}
        for step in range(1000):
            value = math.nan if step % 7 == 0 else step % 5
            summary = followed.follow(settings, summary, AlertPoint("m", step, value))
        assert len(json.dumps(summary)) < 200, condition
