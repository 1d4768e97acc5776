"""A gradient norm above its limit fails a training, or is logged; every form that clips by norm."""

import logging

import pytest
import torch
from torch import nn

from trainops.kind import KINDS
from trainops.runtime.errors import ConfigError, ExplodingNorm, InputError
from trainops.runtime.job import Closing

MODULE = {"recipe": "pair", "parameters": {"max_grad_norm": 1e6}}
LIGHTNING = {"recipe": "lit", "parameters": {"gradient_clip_val": 1e6}}
TRAINER = {"recipe": "hugging", "monitor": "eval_loss"}
SLOW = pytest.mark.slow


@pytest.fixture
def make():
    jobs = []

    def make_job(kind, limits, given):
        config = KINDS[kind].parse_config({"threads": 1, "limits": limits, **given})
        jobs.append(KINDS[kind].make_job(config, {}, None))
        return jobs[-1]

    yield make_job
    for job in jobs:
        if isinstance(job, Closing):
            job.close()


def weights(job):
    """Return copies of what is trained: the buffers have moved in the forward pass."""
    state = job.state_dict()["model"].items()
    return {name: each.clone() for name, each in state if name.endswith(("weight", "bias"))}


def require_extra(given):
    extras = {"lit": "lightning.pytorch", "hugging": "transformers"}
    pytest.importorskip(extras.get(given["recipe"], "torch"))


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (MODULE, "epoch 1 of 10, train 1 of 6"),
        pytest.param(LIGHTNING, "epoch 1 of 10, train 1 of", marks=SLOW),
        pytest.param(TRAINER, "epoch 1 of 2, train 1 of 6", marks=SLOW),
    ],
)
def test_the_step_the_norm_the_limit_and_the_batch_are_named(make, given, where):
    require_extra(given)
    job = make("loop", {"exploding_norm": 1e-9}, given)
    before = weights(job)
    with pytest.raises(ExplodingNorm) as found:
        job.advance()
    assert found.value.norm > 1e-9
    assert f"norm is {found.value.norm:g} in step 1 ({where}" in str(found.value)
    assert str(found.value).endswith("; allowed by limits.exploding_norm: up to 1e-09")
    after = weights(job)
    assert before and all(torch.equal(each, after[name]) for name, each in before.items())


def test_ingredients_name_the_examples_before_the_weights_move(make):
    toy = {"recipe": "toy", "batch_size": 2, "max_grad_norm": 1.0}
    job = make("training", {"exploding_norm": 1e-9}, toy)
    before = weights(job)
    with pytest.raises(ExplodingNorm, match=r"in step 1 \(examples \d+, \d+\); allowed by limits"):
        job.advance()
    after = weights(job)
    assert before and all(torch.equal(each, after[name]) for name, each in before.items())


@pytest.mark.parametrize("limits", [{}, {"exploding_norm": 1e9}])
def test_a_norm_within_its_limit_changes_nothing(make, limits):
    job = make("loop", limits, MODULE)
    job.advance()
    assert job.step == 1


def test_a_norm_above_its_limit_can_be_logged_instead(make, caplog):
    limits = {"exploding_norm": 1e-9, "on_exploding_norm": "warn"}
    job = make("loop", limits, MODULE)
    with caplog.at_level(logging.WARNING):
        job.advance()
    assert job.step == 1
    (record,) = [each for each in caplog.records if "gradient norm is" in each.message]
    assert "in step 1 (epoch 1 of 10, train 1 of 6)" in record.message


@pytest.mark.parametrize(
    ("kind", "given", "allowed"),
    [
        ("training", {"recipe": "toy"}, "got 5 without max_grad_norm"),
        ("loop", {"recipe": "pair"}, "got 5 without max_grad_norm"),
        pytest.param("loop", {"recipe": "lit"}, "allowed: with gradient_clip_val", marks=SLOW),
        pytest.param(
            "loop", TRAINER | {"parameters": {"arguments": {"max_grad_norm": 0.0}}},
            "allowed: with max_grad_norm of the arguments", marks=SLOW,
        ),
    ],
)  # fmt: skip
def test_a_limit_without_clipping_by_norm_is_refused(make, kind, given, allowed):
    require_extra(given)
    with pytest.raises((ConfigError, InputError), match=allowed) as refused:
        make(kind, {"exploding_norm": 5.0}, given)
    assert list(refused.value.errors) == ["limits.exploding_norm"]


def own_loop(norms, **options):
    def train(run, parameters):
        model = run.keep("model", nn.Linear(1, 1))
        for step in run.steps("step", len(norms)):
            model.weight.data.fill_(step)
            run.check_norm(norms[step], **options)
            yield {"train_loss": 1.0}

    return train


def test_a_loop_of_its_own_passes_its_norms(follow):
    limits = {"exploding_norm": 5.0}
    follow(own_loop([1.0, torch.tensor(5.0)]), limits=limits)
    for norm in (6.0, torch.tensor(float("nan"))):
        with pytest.raises(ExplodingNorm, match=r"in step 3 \(step 3 of 4\)"):
            follow(own_loop([1.0, 2.0, norm, 1.0]), limits=limits)


def test_an_overflow_that_a_scaler_leaves_out_is_no_explosion(follow):
    follow(own_loop([1.0, float("inf")], is_scaled=True), limits={"exploding_norm": 5.0})
    with pytest.raises(ExplodingNorm):
        follow(own_loop([1.0, 6.0], is_scaled=True), limits={"exploding_norm": 5.0})


def test_code_that_runs_again_on_the_way_of_a_resume_is_not_compared(follow):
    calls = []

    def train(run, parameters):
        run.keep("counts", {})
        inner = run.steps("inner", 3)
        for _ in run.epochs(1):
            calls.append(None)
            run.check_norm(9.0 if len(calls) == 2 else 1.0)
            for _ in inner:
                yield {"train_loss": 1.0}

    limits = {"exploding_norm": 5.0}
    first = follow(train, at=1, limits=limits)
    follow(train, resume=first.checkpoints, number=2, limits=limits)
    assert len(calls) == 2


def test_a_limit_that_no_norm_was_compared_with_is_logged(follow, caplog):
    def train(run, parameters):
        for _ in run.epochs(1):
            yield {"train_loss": 1.0}

    with caplog.at_level(logging.WARNING):
        follow(train, limits={"exploding_norm": 5.0})
    assert "limits.exploding_norm had no effect: the loop called no run.check_norm" in caplog.text
