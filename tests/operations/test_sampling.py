"""Suggestions of Optuna's samplers as a function of the trials so far."""

import pytest

from apps.operations.studies.designs import Design
from apps.operations.studies.sampling import Known, StudySearch

VALUES = {
    "rate": {"low": 1e-4, "high": 1e-1, "log": True},
    "depth": {"low": 1, "high": 9, "whole": True},
    "kind": ["adam", "sgd"],
}


def search(trials=(), state=None, modes=("min",), **design):
    return StudySearch("st_1", Design.parse({"values": VALUES, **design}), modes, trials, state)


def ran(method, number, modes=("min",), **design):
    """Suggest and complete trials, with everything rebuilt from what was stored before each."""
    trials, state = [], {}
    for _ in range(number):
        asked = search(trials, state, modes, method=method, **design)
        suggested, state = asked.suggest(), dict(asked.state)
        results = [abs(suggested.values["depth"] - 7) + suggested.values["rate"] for _ in modes]
        trials.append(Known(suggested.values, "COMPLETE", results, state=suggested.state))
    return trials


@pytest.mark.parametrize("method", ["random", "qmc", "tpe", "cmaes"])
def test_each_sampler_suggests_the_same_from_the_same_trials(method):
    found = ran(method, 14, seed=3)
    assert [each.values for each in found] == [each.values for each in ran(method, 14, seed=3)]
    assert found[0].values != ran(method, 1, seed=4)[0].values
    for each in found:
        assert 1e-4 <= each.values["rate"] <= 1e-1 and each.values["kind"] in ("adam", "sgd")
        assert isinstance(each.values["depth"], int) and 1 <= each.values["depth"] <= 9


@pytest.mark.parametrize("method", ["tpe", "cmaes"])
def test_samplers_that_go_by_results_approach_the_best(method):
    depths = [each.values["depth"] for each in ran(method, 40)]
    assert sum(abs(each - 7) for each in depths[30:]) < sum(abs(each - 7) for each in depths[:10])


def test_a_state_of_cma_es_goes_from_trial_to_trial():
    found = ran("cmaes", 12)
    assert any("cma:optimizer:0" in each.state for each in found)
    assert found[-1].state["cma:generation"] >= 1


def test_a_quasi_random_sequence_spreads_its_points():
    values = {"a": {"low": 0.0, "high": 1.0}, "b": {"low": 0.0, "high": 1.0}}
    asked = search(values=values, method="qmc")
    points = [asked.suggest().values for _ in range(16)]
    cells = {(int(each["a"] * 4), int(each["b"] * 4)) for each in points}
    assert len(cells) == 16, "a Sobol sequence has a point in each of 4 x 4 cells"


def test_a_grid_is_every_combination_once_whatever_the_order():
    values = {"fast": [5, 10], "layers": [[1], [1, 2], [1]], "flag": [True, 1]}
    asked = search(values=values)
    assert asked.design.num_trials == 8
    found = [asked.suggest().values for _ in range(8)]
    made = [(f, n, g) for f in (5, 10) for n in ([1], [1, 2]) for g in (True, 1)]
    assert sorted(map(repr, (tuple(each.values()) for each in found))) == sorted(map(repr, made))


def test_a_path_has_values_under_its_condition_only():
    conditions = {"depth": {"path": "kind", "values": ["adam"]}}
    values = {"kind": ["adam", "sgd"], "depth": [1, 2]}
    for method in ("grid", "random", "tpe"):
        asked = search(values=values, conditions=conditions, method=method)
        found = [asked.suggest().values for _ in range(4)]
        assert all(("depth" in each) == (each["kind"] == "adam") for each in found)


def test_several_objectives_are_searched():
    assert len(ran("tpe", 14, modes=("min", "max"))) == 14


def reporting(values, outcome="COMPLETE"):
    results = [values[-1]] if outcome == "COMPLETE" else None
    reported = dict(enumerate(values, start=1))
    return Known({"rate": 0.01, "depth": 1, "kind": "sgd"}, outcome, results, reported)


@pytest.mark.parametrize(
    ("value", "is_pruned"), [(0.9, True), (0.1, False)], ids=["worse", "better"]
)
def test_the_median_pruner_stops_what_is_worse_than_the_median(value, is_pruned):
    trials = [reporting([0.5, 0.4]) for _ in range(3)] + [reporting([0.9, value], "RUNNING")]
    pruner = {"method": "median", "min_trials": 3}
    assert search(trials, method="random", pruner=pruner).is_to_be_pruned(3) is is_pruned
    waits = search(trials, method="random", pruner={"method": "median", "min_trials": 4})
    assert not waits.is_to_be_pruned(3)


@pytest.mark.parametrize("method", ["asha", "hyperband"])
def test_halving_keeps_the_rungs_of_a_trial_in_its_state(method):
    pruner = {"method": method, "reduction": 2}
    trials = [reporting([0.5] * 9)] + [reporting([0.1 * n], "RUNNING") for n in range(8)]
    states = []
    for number in range(1, 9):
        asked = search(trials, method="random", pruner=pruner)
        asked.is_to_be_pruned(number)
        states.append(asked.trials[number].system_attrs)
    assert any("completed_rung_0" in each for each in states)
