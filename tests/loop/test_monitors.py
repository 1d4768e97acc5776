"""Several monitored metrics of a loop: the best model by each, wherever it was stopped."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from trainops.kind import KINDS
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import ConfigError, InputError

LOSSES = st.sampled_from([None, 0.0, 0.5, 1.0])  # None: not yielded at this step
ACCURACIES = st.sampled_from([None, 0.0, 0.5, 1.0, math.nan, math.inf])
MODES = {"val_loss": "min", "val/Acc": "max"}
PARTS = {"val_loss": "best_model", "val/Acc": "best_model_val_acc"}


def loop_of(curve):
    """Return a loop whose weight is the number of the step, and that yields these values."""

    def train(run, parameters):
        model = run.keep("model", nn.Linear(1, 1, bias=False))
        for step in run.steps("step", len(curve)):
            nn.init.constant_(model.weight, step)
            values = zip(MODES, curve[step], strict=True)
            yield {"train_loss": 1.0} | {n: each for n, each in values if each is not None}

    return train


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    curve=st.lists(st.tuples(LOSSES, ACCURACIES), min_size=1, max_size=6),
    stops=st.sets(st.integers(1, 5)),
)
def test_the_best_model_by_each_metric_is_that_of_the_whole_curve(monkeypatch, curve, stops):
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop_of(curve))
    config = KINDS["loop"].parse_config(
        {"recipe": "digits_loop", "device": "cpu", "monitors": {"val/Acc": "max"}}
    )
    job = KINDS["loop"].make_job(config)
    while job.step < len(curve):
        job.advance()
        if job.step in stops:  # another process goes on with what this one saved
            state = freeze(job.state_dict())
            job.close()
            job = KINDS["loop"].make_job(config)
            job.load_state_dict(state)
    state, result = job.state_dict(), job.result()
    job.close()
    plain = state["state"]
    lines = {"val_loss": plain, "val/Acc": plain["monitored"]["val/Acc"]}
    for index, (name, mode) in enumerate(MODES.items()):
        sign = 1 if mode == "min" else -1
        values = [(each[index], step) for step, each in enumerate(curve, 1)]
        found = [(sign * v, step) for v, step in values if v is not None and math.isfinite(v)]
        best = min(found)[1] if found else None
        assert (lines[name]["best_step"], PARTS[name] in state) == (best, best is not None)
        if best is not None:
            assert state[PARTS[name]]["model"]["weight"].item() == best - 1
    last = curve[-1][1]
    assert lines["val/Acc"]["metric"] == (
        last if last is not None and math.isfinite(last) else None
    )
    assert result["monitored"]["val/Acc"]["step"] == lines["val/Acc"]["best_step"]


def test_a_loop_keeps_nothing_under_the_name_of_a_best_model(follow):
    def train(run, parameters):
        run.keep("best_model_val_acc", {})
        for _ in run.epochs(1):
            yield {"val_loss": 1.0}

    follow(train)
    with pytest.raises(InputError, match="best_model_val_acc"):
        follow(train, monitors={"val/Acc": "max"})


@pytest.mark.parametrize(
    ("monitors", "says"),
    [
        ({"val/acc": "max", "val_acc": "max"}, "would both be saved as best_model_val_acc.pt"),
        ({"VAL_LOSS": "min"}, "VAL_LOSS and val_loss would both be saved"),
        ({"system/gpu": "max"}, "do not begin with system/"),
        ({"": "max"}, "'' is no metric"),
    ],
)
def test_metrics_with_the_same_file_are_refused(monitors, says):
    with pytest.raises(ConfigError) as caught:
        KINDS["loop"].parse_config({"recipe": "digits_loop", "monitors": monitors})
    assert says in caught.value.errors["monitors"]


@pytest.mark.parametrize(("monitor", "is_warned"), [("val_r3", True), ("val_loss", False)])
def test_a_monitored_metric_that_has_no_value_is_a_warning(monkeypatch, caplog, monitor, is_warned):
    """The default is not in every loop, so that it is none."""
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop_of([(None, None)] * 2))
    raw = {"recipe": "digits_loop", "device": "cpu", "log_every_steps": 1, "monitor": monitor}
    job = KINDS["loop"].make_job(KINDS["loop"].parse_config(raw))
    while not job.is_finished:
        job.advance()
    job.close()
    warned = "no value so far of the monitored val_r3; measured: train_loss" in caplog.text
    assert warned == is_warned
