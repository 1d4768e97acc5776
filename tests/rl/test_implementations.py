"""The fast and the plain implementation of agents' updates have equal results, bit for bit."""

import copy
import tempfile
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.contract import (
    Case,
    DrawnCase,
    ScriptedSupervisor,
    attempt,
    ending,
    require_same_ending,
)
from tests.rl.cases import CASES
from tests.rl.populations import job_of
from tests.rl.test_drawn import PAIRWISE
from tests.thinning import quick_some
from trainops.kinds.rl import plain
from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.fast import following
from trainops.kinds.rl.fast.fused_adam import FusedAdam
from trainops.kinds.rl.networks import perceptron
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze

SIZES = st.lists(st.integers(1, 70), min_size=2, max_size=4)


@pytest.fixture(autouse=True)
def _settings_again():
    yield
    reproducibility.set_determinism(deterministic=True, threads=1)


def under(value, monkeypatch, task):
    """Return what a task returns with the plain implementation (1) or the fast one (0)."""
    monkeypatch.setenv("TRAINOPS_PLAIN", value)
    return task()


def without_moments(end):
    """Return the end without Adam's moments: the plain one has none before its first move."""
    parts = {name: each for name, each in end.state.items() if name != "optimizer"}
    return type(end)(parts, end.result, end.points)


@pytest.mark.parametrize(
    "config",
    quick_some(
        [*(config for _, config, _ in CASES), *PAIRWISE],
        every=16,
    ),
    ids=lambda config: config["algorithm"],
)
def test_runs_of_drawn_configs_are_equal(config, monkeypatch):
    case = DrawnCase("rl", "drawn", {**config, "device": "cpu", "resources": {}}, ())
    with tempfile.TemporaryDirectory() as name:
        ends = [under(value, monkeypatch, lambda: ending(case, Path(name))) for value in "01"]
    require_same_ending(*map(without_moments, ends), config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "order"), quick_some([*product([n for n, *_ in CASES], ["01", "10"])], every=5)
)
def test_a_state_of_one_continues_in_the_other(name, order, monkeypatch):
    (config,) = (config for other, config, _ in CASES if other == name)
    for steps in (0, 10):
        ends = []
        for second in order:
            reproducibility.seed_all(7)
            first = under(order[0], monkeypatch, lambda: job_of(config))
            while first.step < steps:
                first.advance()
            job = under(second, monkeypatch, lambda: job_of(config))
            random, state = reproducibility.state_dict(), freeze(first.state_dict())
            job.load_state_dict(state)
            reproducibility.load_state_dict(random)
            while job.step < job.total_steps:
                job.advance()
            ends.append(freeze(job.state_dict())["model"])
        assert all(map(torch.equal, leaves(ends[0]), leaves(ends[1])))


def leaves(state):
    if isinstance(state, torch.Tensor):
        return [state]
    return [leaf for each in state.values() for leaf in leaves(each)]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(sizes=SIZES, max_norm=st.sampled_from([None, 0.01, 1e6]), rate=st.floats(1e-5, 0.1),
       batch=st.integers(1, 40), seed=st.integers(0, 999), is_double=st.booleans())  # fmt: skip
def test_updates_of_drawn_networks_are_equal(sizes, max_norm, rate, batch, seed, is_double):
    torch.manual_seed(seed)
    own = perceptron(sizes).to(torch.float64 if is_double else torch.float32)
    theirs = copy.deepcopy(own)
    config = RlConfig(
        recipe="grid_town", environment_steps=1, learning_rate=rate, max_grad_norm=max_norm
    )
    optimizers = FusedAdam(own, config), plain.PlainAdam(theirs, config)
    for step in range(6):
        inputs = torch.randn(batch, sizes[0]).to(next(own.parameters()))
        for network, optimizer in zip((own, theirs), optimizers, strict=True):
            optimizer.move((network(inputs) - 1).square().mean(), step)
        assert all(map(torch.equal, own.parameters(), theirs.parameters()))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(sizes=SIZES, tau=st.one_of(st.just(1.0), st.floats(1e-4, 0.9999)))
def test_targets_of_drawn_networks_are_equal(sizes, tau):
    torch.manual_seed(len(sizes))
    online, target = perceptron(sizes), perceptron(sizes)
    other = copy.deepcopy(target)
    following.follow(target, online, tau)
    plain.follow(other, online, tau)
    assert all(map(torch.equal, target.parameters(), other.parameters()))
    assert torch.equal(target[0].weight, online[0].weight) is (tau == 1)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["01", "10"])
def test_a_receipt_calls_a_resume_in_the_other_exact(order, monkeypatch, tmp_path):
    name, config, _ = CASES[0]
    tried = Case("rl", name, config, stops=())
    expected = ScriptedSupervisor()
    monkeypatch.setenv("TRAINOPS_PLAIN", order[0])
    attempt(tried, tmp_path / "whole", expected)
    first, second = ScriptedSupervisor(at=13), ScriptedSupervisor()
    attempt(tried, tmp_path / "resumed", first)
    monkeypatch.setenv("TRAINOPS_PLAIN", order[1])
    attempt(tried, tmp_path / "resumed", second, resume=first.checkpoints, number=2)
    (receipt,) = second.receipts
    assert receipt.exact
    item = receipt.items[-1]
    assert item.part == "implementation" and item.note.endswith("both have equal results")
    last, other = (each.checkpoints[-1].path / "model.pt" for each in (expected, second))
    assert last.read_bytes() == other.read_bytes()
