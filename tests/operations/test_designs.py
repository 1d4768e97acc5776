"""Designs of studies, and how a series is cut into folds. By hand."""

from datetime import date, timedelta
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apps.operations.studies.designs import Design, TooMany, WalkForward, folds, put
from trainops.runtime.errors import ConfigError


@pytest.mark.parametrize(
    ("design", "problem"),
    [
        ({"values": {}}, "at least one path with values"),
        ({"values": {"a": []}}, "a: got no values"),
        ({"values": {"a": {"low": 1.0, "high": 2.0}}}, "got a range; allowed with grid: values"),
        ({"values": {"a": {"low": 2.0, "high": 2.0}}, "method": "random"}, "must be below high"),
        ({"values": {"a": {"low": 0.0, "high": 2.0, "log": True}}, "method": "random"}, "above 0"),
        ({"values": {"a": [1]}, "walk_forward": {"folds": 0}}, "folds"),
        ({"values": {"a": [1]}, "more": 1}, "no such field"),
        ({"values": {"a": [1]}, "method": "dice"}, "method"),
        ({"values": {"a": [1]}, "method": "tpe", "walk_forward": {}}, "allowed: grid, random, qmc"),
        ({"values": {"a": [1]}, "parallel": 2, "walk_forward": {}}, "walk_forward allows no"),
        (
            {"values": {"a": [1]}, "conditions": {"b": {"path": "a", "values": [1]}}},
            "got 'b'; allowed: a",
        ),
        (
            {"values": {"a": [1]}, "conditions": {"a": {"path": "a", "values": [1]}}},
            "got 'a'; allowed: none",
        ),
        (
            {"values": {"a": {"low": 0.1, "high": 0.9, "whole": True}}, "method": "random"},
            "no integer",
        ),
        (
            {
                "values": {"a": [1]},
                "pruner": {"method": "median"},
                "further_objectives": [{"metric": "trades", "mode": "max"}],
            },
            "one objective only",
        ),
        (
            {"values": {"a": {"low": -1.7e308, "high": 1.7e308}}, "method": "random"},
            "too long for a number",
        ),
    ],
)
def test_what_is_no_design_is_refused(design, problem):
    with pytest.raises(ConfigError, match=problem):
        Design.parse(design)


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        (
            {"low": 2.0, "high": 1.0},
            {"values.a": "got {'low': 2.0, 'high': 1.0}; low (2) must be below high (1)"},
        ),
        ({"low": 2.0}, {"values.a.high": "nothing was given; it is required"}),
        (5, {"values.a": "got 5; must be a valid list"}),
    ],
)
def test_an_error_of_values_has_the_path_that_was_given(given, errors):
    with pytest.raises(ConfigError) as refused:
        Design.parse({"values": {"a": given}, "method": "random"})
    assert refused.value.errors == errors


def test_too_many_are_refused_before_they_are_made():
    with pytest.raises(TooMany, match="1000000 operations; at most 500"):
        _ = Design.parse({"values": {name: list(range(100)) for name in "abc"}}).num_trials


def test_values_are_put_at_their_paths_and_the_config_stays_as_it_was():
    config = {"parameters": {"fast": 1, "slow": 9}, "cash": 5}
    made = put(config, {"parameters.fast": 2, "commission.relative": 0.1, "cash": 6})
    assert made == {
        "parameters": {"fast": 2, "slow": 9}, "commission": {"relative": 0.1}, "cash": 6,
    }  # fmt: skip
    assert config == {"parameters": {"fast": 1, "slow": 9}, "cash": 5}


def test_folds_by_hand():
    plan = WalkForward.parse({"folds": 2, "in_sample": 0.5})
    found = folds(plan, date(2020, 1, 1), date(2020, 1, 30))
    assert [(each.start.day, each.split.day, each.end.day) for each in found] == [
        (1, 11, 21),
        (11, 21, 31),
    ]
    assert found[1].config(is_test=True) == {"start": "2020-01-21", "until": "2020-01-31"}
    assert found[1].config(is_test=False) == {"start": "2020-01-11", "until": "2020-01-21"}
    anchored = folds(
        WalkForward.parse({"folds": 2, "in_sample": 0.5, "anchored": True}),
        date(2020, 1, 1), date(2020, 1, 30),
    )  # fmt: skip
    assert [each.start.day for each in anchored] == [1, 1]


@settings(deadline=None)
@example(8, 0.16, 42, False)  # a period of one day that begins at a half
@given(st.integers(1, 50), st.floats(0.1, 0.95), st.integers(0, 5000), st.booleans())
def test_tried_spans_follow_one_another_to_the_last_day(num_folds, in_sample, num_days, anchored):
    plan = WalkForward(folds=num_folds, in_sample=in_sample, anchored=anchored)
    first = date(2000, 1, 1)
    last = first + timedelta(days=num_days)
    share = Fraction(str(in_sample))
    ratio = share / (1 - share)
    if (num_days + 1) / (num_folds + ratio) * min(1, ratio) < 1:
        with pytest.raises(ValueError, match="shorter than a day"):
            folds(plan, first, last)
        return
    found = folds(plan, first, last)
    assert len(found) == num_folds and found[0].start == first
    assert found[-1].end == last + timedelta(days=1)
    assert all(one.end == other.split for one, other in pairwise(found))
    assert all(each.start < each.split < each.end for each in found)
