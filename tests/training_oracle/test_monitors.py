"""Several monitored metrics: the best epoch by each, found by hand from the whole curve."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.contract import (
    Case,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from tests.training_oracle.comparing import make_job, parse
from tests.training_oracle.test_stopping import PER_EPOCH, config_of
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import ConfigError, IncompatibleState, InputError

FEW = st.sampled_from([1.0, 2.0, 3.0, math.nan, math.inf])  # so that there are ties
MODES = st.sampled_from(["min", "max"])
BY = {"val_score": "best_model", "val_other": "best_model_val_other"}


def monitoring(scores, others, modes=("min", "max"), **more):
    """Return a config that monitors val_score and, further, val_other."""
    found = config_of(scores, modes[0], None, monitors={"val_other": modes[1]}, **more)
    return {**found, "parameters": {**found["parameters"], "others": others}}


def best_of(values, mode):
    """Return the epoch, from 1, of the first best finite value; None where there is none."""
    sign = 1 if mode == "min" else -1
    found = [(sign * value, epoch) for epoch, value in enumerate(values, 1) if math.isfinite(value)]
    return min(found)[1] if found else None


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(scores=st.lists(FEW, min_size=1, max_size=6), modes=st.tuples(MODES, MODES), data=st.data())
def test_the_best_by_each_metric_is_that_of_the_whole_curve_wherever_it_was_stopped(
    scores, modes, data
):
    others = [data.draw(st.integers(-2, 2)) / 2 for _ in scores]
    config = parse(monitoring(scores, others, modes))
    stops = data.draw(st.sets(st.integers(1, len(scores) * PER_EPOCH)))
    job, weights = make_job(config, {}), []
    while job.step < job.total_steps:
        job.advance()
        if job.step % PER_EPOCH == 0:
            weights.append(job.state_dict()["model"]["layer.weight"].clone())
        if job.step in stops:  # another process goes on with what this one saved
            state = freeze(job.state_dict())
            job = make_job(config, {})
            job.load_state_dict(state)
    state, result = job.state_dict(), job.result()
    lines = {"val_score": result["best"], "val_other": result["monitored"]["val_other"]}
    for (name, part), values, mode in zip(BY.items(), (scores, others), modes, strict=True):
        best = best_of(values, mode)
        assert (lines[name]["epoch"], part in state) == (best, best is not None)
        if best is not None:
            assert lines[name]["value"] == values[best - 1]
            assert torch.equal(state[part]["layer.weight"], weights[best - 1])
    line = state["state"]["monitored"]["val_other"]
    assert (line["metric"], line["best_epoch"]) == (others[-1], lines["val_other"]["epoch"])


@pytest.mark.slow
def test_stops_and_deaths_change_no_file_of_a_training_with_several_metrics(tmp_path):
    config = monitoring([3, 1, 2, 2], [0.5, 0.25, 0.75, 0.75])
    case = Case("training", "monitors", config, ())
    expected = undisturbed(case, tmp_path)
    files = {each.name for each in expected.checkpoints[-1].artifacts}
    assert {"best_model.pt", "best_model_val_other.pt"} <= files
    for at in range(1, 4 * PER_EPOCH):
        require_stop_changes_nothing(case, tmp_path / f"stop{at}", expected, [at])
    require_death_changes_nothing(case, tmp_path / "death", expected, at=8, every_steps=2)


def test_a_config_without_further_metrics_is_what_it_was():
    plain = parse(config_of([1, 2], "min", None))
    assert "monitors" not in plain.model_dump(mode="json")
    job = make_job(plain, {})
    for _ in range(2 * PER_EPOCH):
        job.advance()
    state = job.state_dict()
    assert "monitored" not in state["state"] and "monitored" not in job.result()
    assert [name for name in state if name.startswith("best")] == ["best_model"]


def test_metrics_are_in_the_order_of_their_names_whatever_order_was_given():
    given = parse({**config_of([1], "min", None), "monitors": {"val_b": "min", "train_a": "max"}})
    assert list(given.model_dump()["monitors"].items()) == [("train_a", "max"), ("val_b", "min")]


@pytest.mark.parametrize(
    ("monitors", "says"),
    [
        ({"val_score": "max"}, "is monitor already"),
        ({"accuracy": "max"}, "'accuracy' is no metric; allowed: ^(train|val)_"),
        ({"val_other": "more"}, "must be 'min' or 'max'"),
        ({f"val_{'x' * 60}": "max"}, "is no metric"),
        (["val_other"], "must be pairs of a name and a value, such as {'val_accuracy': 'max'}"),
    ],
)
def test_what_is_no_further_metric_is_refused_by_name(monitors, says):
    with pytest.raises(ConfigError) as caught:
        parse({**config_of([1], "min", None), "monitors": monitors})
    ((field, problem),) = caught.value.errors.items()
    assert field.partition(".")[0] == "monitors" and says in problem


def test_a_metric_that_the_recipe_does_not_measure_is_refused_before_the_first_step():
    config = parse({**config_of([1], "min", None), "monitors": {"val_iou": "max"}})
    with pytest.raises(InputError, match="got 'val_iou'; scripted_scores measures train_loss"):
        make_job(config, {})


def test_a_fork_keeps_the_further_metrics():
    before = parse(monitoring([1], [1]))
    for monitors in ({}, {"val_other": "min"}, {"val_loss": "min"}):
        after = parse({**monitoring([1], [1]), "monitors": monitors})
        with pytest.raises(ConfigError, match="a fork keeps"):
            after.require_forkable(before)
        with pytest.raises(ConfigError, match="a fork keeps"):
            before.require_forkable(after)


def test_a_state_whose_best_models_and_metrics_disagree_is_refused():
    config = parse(monitoring([2, 1], [1, 2]))
    job = make_job(config, {})
    for _ in range(PER_EPOCH):
        job.advance()
    state = freeze(job.state_dict())
    without = {name: each for name, each in state.items() if name != "best_model_val_other"}
    lines = {"val_other": {**state["state"]["monitored"]["val_other"], "best_metric": 3.0}}
    other = {**state, "state": {**state["state"], "monitored": lines}}
    for wrong, says in [(without, "best model by val_other"), (other, "monitored is")]:
        with pytest.raises(IncompatibleState, match=says):
            make_job(config, {}).load_state_dict(freeze(wrong))
