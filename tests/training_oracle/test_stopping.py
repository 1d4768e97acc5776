"""Early stopping and the best epoch, counted by hand: scripted metrics, expected numbers."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.contract import Case, ScriptedSupervisor, attempt
from tests.thinning import quick_some
from tests.training_oracle.comparing import make_job, parse, require_equal
from trainops.runtime.loop import Directive, Stopped, Succeeded

NAN, INF = math.nan, math.inf
# val_score of each epoch, mode, patience: epochs that are trained, the best of them (from 1)
BY_HAND = [
    ([5, 4, 3, 2, 1], "min", 1, 5, 5),
    ([5, 6, 4, 3, 2], "min", 1, 2, 1),  # one epoch is no better: that is enough
    ([5, 6, 4, 3, 2], "min", 2, 5, 5),
    ([5, 6, 7, 4, 3], "min", 2, 3, 1),
    ([5, 6, 4, 5, 5, 1], "min", 2, 5, 3),  # the count starts again with each best epoch
    ([5, 6, 4, 5, 3, 4, 2, 3], "min", 2, 8, 7),
    ([5, 5, 5, 5], "min", 3, 4, 1),  # a tie is no improvement, however often; the first is best
    ([5, 5, 5, 5], "min", 4, 4, 1),
    ([5, 4.999999999999999, 5], "min", 1, 3, 2),  # the least improvement is one
    ([1, 2, 3], "min", None, 3, 1),
    ([1, 2, 2, 1], "max", 1, 3, 2),
    ([1, 2, 2, 1], "max", 2, 4, 2),
    ([3, 2, 1, 0, 9], "max", 4, 5, 5),
    ([3, 2, 1, 0, 9], "max", 3, 4, 1),
    ([-1, -2, -3], "min", 1, 3, 3),
    ([-1, -2, -3], "max", 1, 2, 1),
    ([NAN, NAN, 3, 4], "min", 2, 2, None),  # an epoch without a number is no improvement
    ([NAN, 7, 3, NAN, 4], "min", 2, 5, 3),
    ([NAN, NAN, NAN], "max", None, 3, None),
    ([INF, INF, 3, 4], "min", 3, 4, 3),  # infinite is no improvement either
    ([INF, INF, 3, 4], "min", 2, 2, None),
    ([1, INF, 2, 1, 1], "max", 2, 5, 3),
    ([INF, 1, 0, 0], "max", 2, 4, 2),
    ([5, -INF, 4, 6], "min", 2, 4, 3),
]
RESUMED = quick_some(BY_HAND, every=12)
PER_EPOCH = 3  # steps: batches of 2 of 6 examples


def config_of(scores, mode, patience, **more):
    odd = {str(i): str(each) for i, each in enumerate(scores) if not math.isfinite(each)}
    finite = [each if math.isfinite(each) else 0.0 for each in map(float, scores)]
    return {
        "recipe": "scripted_scores", "parameters": {"scores": finite, "not_finite": odd},
        "epochs": len(scores), "batch_size": 2, "monitor": "val_score", "mode": mode,
        "early_stopping_patience": patience, "seed": 3, **more,
    }  # fmt: skip


def line(case):
    scores, mode, patience, *_ = case
    return f"{scores}-{mode}-{patience}"


@pytest.mark.parametrize("case", BY_HAND, ids=line)
def test_epochs_and_the_best_of_them_by_hand(case):
    scores, mode, patience, epochs, best = case
    job = make_job(parse(config_of(scores, mode, patience)), {})
    weights = []
    while job.step < job.total_steps:
        job.advance()
        if job.step % PER_EPOCH == 0:
            weights.append(job.state_dict()["model"]["layer.weight"].clone())
    state, result = job.state_dict(), job.result()
    assert result["epochs"] == len(weights) == epochs
    assert result["stopped_early"] == (epochs < len(scores) or _ran_out(case))
    assert result["best"]["epoch"] == state["state"]["best_epoch"] == best
    assert result["best"]["value"] == (None if best is None else scores[best - 1])
    assert state["state"]["epochs_without_improvement"] == epochs - (best or 0)
    if best is None:
        assert "best_model" not in state
    else:
        assert torch.equal(state["best_model"]["layer.weight"], weights[best - 1])


def _ran_out(case):
    """Whether the patience ends with the last epoch, too."""
    scores, _, patience, epochs, best = case
    return patience is not None and epochs == len(scores) and epochs - (best or 0) >= patience


@pytest.mark.slow
@pytest.mark.parametrize(("scores", "mode", "patience", "epochs", "best"), RESUMED)
def test_a_resume_counts_on(scores, mode, patience, epochs, best, tmp_path):
    """Stopped after every step in turn, each time into a new attempt that continues from there."""
    operation = Case("training", "here", config_of(scores, mode, patience), stops=())
    saved, at, directives = [], 0, [Directive.CANCEL, Directive.PREEMPT]
    while True:
        at += 1
        supervisor = ScriptedSupervisor(at=at, directive=directives[at % 2])
        outcome = attempt(operation, tmp_path, supervisor, resume=saved, number=at)
        if isinstance(outcome, Succeeded):
            break
        assert isinstance(outcome, Stopped), outcome
        saved = [supervisor.checkpoints[-1], *saved]
    assert at == epochs * PER_EPOCH, "an attempt for every step"
    assert (outcome.result["epochs"], outcome.result["best"]["epoch"]) == (epochs, best)


def test_a_fork_with_more_patience_continues_from_where_it_was_stopped():
    """Patience counts all epochs without improvement, also those before the fork."""
    scores = [5, 6, 7, 8, 9, 1]
    first = make_job(parse(config_of(scores, "min", 1)), {})
    while first.step < first.total_steps:
        first.advance()
    assert first.result()["epochs"] == 2
    for patience, epochs in [(1, 2), (2, 3), (4, 5), (5, 6), (None, 6)]:
        job = make_job(parse(config_of(scores, "min", patience)), {})
        job.load_state_dict(first.state_dict())
        while job.step < job.total_steps:
            job.advance()
        assert job.result()["epochs"] == epochs, patience


VALUES = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([NAN, INF, -INF]))


@pytest.mark.slow
@settings(
    deadline=None, database=None, max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    scores=st.lists(VALUES, min_size=1, max_size=9),
    mode=st.sampled_from(["min", "max"]),
    patience=st.one_of(st.none(), st.integers(1, 4)),
)
def test_drawn_metrics_stop_where_the_plain_loop_stops(scores, mode, patience):
    require_equal(config_of(scores, mode, patience, batch_size=6))
