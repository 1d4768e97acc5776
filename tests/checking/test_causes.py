"""Values that a resume does not bring back, found in descriptions of a job's objects."""

import datetime
import itertools
import time

import numpy as np
import pytest
import torch
from torch import nn

from trainops.checking import clocks
from trainops.checking.causes import forgotten, suspects, unstable
from trainops.checking.graphs import describe
from trainops.checking.messages import Graph
from trainops.checking.tasks import differing


class Job:
    """A job made of these objects."""

    def __init__(self, **objects):
        self._objects = objects

    def objects(self):
        return self._objects


def graphs(*jobs):
    return [Graph(step, describe(job)) for step, job in enumerate(jobs, 1)]


class Model(nn.Module):
    def __init__(self, seen):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        nn.init.ones_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        self.seen = seen


def findings(undisturbed, resumed):
    return [
        (each.category, each.subject)
        for each in forgotten(
            graphs(*(Job(model=each) for each in undisturbed)),
            graphs(*(Job(model=each) for each in resumed)),
        )
    ]


def test_an_attribute_that_stays_different_is_forgotten():
    assert findings([Model(1), Model(2)], [Model(0), Model(1)]) == [("attribute", "model.seen")]


def test_an_attribute_that_is_equal_after_the_next_step_is_a_cache():
    assert findings([Model(1), Model(2)], [Model(0), Model(2)]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [1]),
        ({"a": 1}, {"a": 2}),
        ({1, 2}, {1, 3}),
        (torch.zeros(2), torch.ones(2)),
        (np.zeros(2), np.ones(2)),
        (np.float64(1), np.float64(2)),
        (float("nan"), 0.0),
        (0.0, -0.0),
        (None, "x"),
    ],
)
def test_values_of_every_type_are_compared(one, other):
    both = [Model(one)] * 2, [Model(other)] * 2
    assert findings(*both) == [("attribute", "model.seen")]
    assert findings(both[0], both[0]) == []


def test_generators_and_iterators_are_named():
    def generators(seed):
        return Model(torch.Generator().manual_seed(seed))

    def iterators(taken):
        numbers = iter(range(9))
        for _ in range(taken):
            next(numbers)
        return Model(numbers)

    assert findings([generators(1)] * 2, [generators(2)] * 2) == [("generator", "model.seen")]
    assert findings([iterators(3)] * 2, [iterators(0)] * 2) == [("iterator", "model.seen")]
    opaque = Model(itertools.cycle("ab"))  # its position cannot be read
    assert findings([opaque] * 2, [opaque] * 2) == []
    both = graphs(Job(model=opaque))
    assert [each.subject for each in suspects(both, both)] == ["model.seen"]


def test_a_list_is_one_finding_whatever_it_holds():
    one, other = Model([1, 2, 3]), Model([4, 5, 6])
    assert findings([one] * 2, [other] * 2) == [("attribute", "model.seen")]


def test_the_earliest_difference_of_two_runs_is_named():
    one = graphs(Job(order=["a", "b"], salt=1))
    other = graphs(Job(order=["b", "a"], salt=1))
    assert unstable(one, other) == ["order"]
    assert unstable(one, one) == []


def test_differing_values_of_two_states_are_named_by_their_paths():
    one = {"model": {"w": torch.zeros(2), "b": torch.zeros(1)}, "state": {"steps": [1, 2]}}
    other = {"model": {"w": torch.ones(2), "b": torch.zeros(1)}, "state": {"steps": [1, 3]}}
    assert list(differing(one, other)) == ["model.w", "state.steps[1]"]
    assert list(differing(one, one)) == []
    assert list(differing({"a": 1}, {"b": 1})) == ["a", "b"]


def test_a_set_clock_moves_by_its_readings(monkeypatch):
    monkeypatch.setattr(time, "time", time.time)
    monkeypatch.setattr(time, "time_ns", time.time_ns)
    monkeypatch.setattr(datetime, "datetime", datetime.datetime)
    monkeypatch.setattr(datetime, "date", datetime.date)
    clocks.set_clock(2_000_000_000)
    start = 2_000_000_000 * 10**9
    assert [time.time_ns() - start for _ in range(2)] == [1_000_000, 2_000_000]
    assert time.gmtime(time.time()).tm_year == 2033
    assert datetime.datetime.now(datetime.UTC).year == 2033  # noqa: TID251
    assert datetime.date.today().year == 2033  # noqa: DTZ011
