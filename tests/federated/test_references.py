"""Against Flower's strategies, Opacus' accountants, published figures, and a naive loop."""

import json
import math
import os
import subprocess
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.federated.runs import make_job, run_through
from tests.thinning import quick_some
from trainops.kinds.federated import prv_accountant
from trainops.kinds.federated.account import Account
from trainops.kinds.federated.accounting import ORDERS, divergence, epsilon
from trainops.kinds.federated.clipping import clipped
from trainops.kinds.federated.options import ServerConfig
from trainops.kinds.federated.private import Noise, NoisyGradients
from trainops.kinds.federated.releases import Release
from trainops.kinds.federated.rng import Secrets
from trainops.kinds.federated.strategies.known import make_strategy
from trainops.learning.ingredients import Examples

INTERPRETER = "TRAINOPS_BENCH_FLOWER"  # of an environment with flwr 1.41
RECORDED = Path(__file__).with_name("flower.json")
FLOWER = json.loads(RECORDED.read_text())
SETTINGS = {
    "fedavg": {},
    "fedavgm": {"learning_rate": 0.5, "momentum": 0.9},
    "fedadam": {"learning_rate": 0.1, "tau": 1e-3},
    "fedyogi": {"learning_rate": 0.1, "tau": 1e-3},
    "fedadagrad": {"learning_rate": 0.1, "tau": 1e-3},
    "median": {},
    "trimmed_mean": {"trim": 0.2},
}


@pytest.mark.parametrize("name", FLOWER["results"])
def test_strategies_agree_with_flower(name):
    current = torch.tensor(FLOWER["start"])
    config = ServerConfig.parse({"strategy": name, **SETTINGS[name]})
    strategy = make_strategy(config, current)
    for number, expected in enumerate(FLOWER["results"][name], start=1):
        updates = torch.tensor(FLOWER["updates"][number - 1])
        weights = torch.tensor(FLOWER["counts"][number - 1], dtype=torch.float64)
        current = strategy.move(current, strategy.combine(updates, weights), number)
        np.testing.assert_allclose(current.numpy(), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("trim", "clients", "hostile"),
    [(0.29, 100, 29), (0.07, 100, 7), (0.3, 10, 3), (0.499999999, 2, 0), (0.499999999, 8, 3)],
)
def test_a_trimmed_mean_leaves_out_its_share_of_hostile_clients(trim, clients, hostile):
    """0.29 of 100 were 28: of 29 hostile clients, one decided."""
    strategy = make_strategy(
        ServerConfig.parse({"strategy": "trimmed_mean", "trim": trim}), torch.zeros(1)
    )
    updates = torch.ones(clients, 1)
    updates[:hostile] = 1e6
    weights = torch.ones(clients, dtype=torch.float64)
    assert strategy.combine(updates, weights).tolist() == [1.0]


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETER not in os.environ, reason=f"{INTERPRETER} names no interpreter")
def test_what_is_held_to_is_what_flower_comes_to():
    """Flower's pins contradict ours, so it runs in an environment of its own."""
    command = [os.environ[INTERPRETER], RECORDED.with_name("flower_results.py"), RECORDED]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name, found in json.loads(output).items():
        np.testing.assert_allclose(found, FLOWER["results"][name], rtol=1e-6)


@pytest.mark.parametrize(
    ("rate", "sigma"), quick_some([*product([0.001, 0.01, 1 / 3, 1.0], [0.5, 1.1, 4.0])], every=5)
)
def test_epsilon_is_that_of_opacus(sigma, rate):
    from opacus.accountants.analysis import rdp

    total = rdp.compute_rdp(q=rate, noise_multiplier=sigma, steps=1000, orders=list(ORDERS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the best order is at an end of those there are
        expected, _ = rdp.get_privacy_spent(orders=list(ORDERS), rdp=total, delta=1e-5)
    assert epsilon({(sigma, rate): 1000}, 1e-5) == pytest.approx(max(0, expected), rel=1e-10)


def test_epsilon_of_mixed_settings_is_that_of_opacus():
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(1.0, 0.01, 500), (1.3, 0.02, 700), (2.0, 0.01, 100)]
    spent = {(1.0, 0.01): 500, (1.3, 0.02): 700, (2.0, 0.01): 100}
    assert epsilon(spent, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-10)


def test_published_figures():
    """Abadi et al. (2016), section 5: the example of figure 2, before conversions got tighter."""
    divergences = 10_000 * divergence(4.0, 0.01)
    classic = divergences + math.log(1e5) / (ORDERS - 1)
    assert round(float(classic.min()), 2) == pytest.approx(1.26, abs=0.011)
    assert epsilon({(4.0, 0.01): 10_000}, 1e-5) < 1.26


@pytest.mark.parametrize(
    ("sigma", "epochs", "figure"),
    [(1.12, 60, 2.92), (1.2, 10, 1.20), (1.12, 2, 1.04), (1.12, 1, 1.00)],
)
def test_published_tables(sigma, epochs, figure):
    """TensorFlow Privacy's tutorials/README.md: MNIST in batches of 256, with their conversion."""
    steps = epochs * 60_000 // 256
    classic = steps * divergence(sigma, 256 / 60_000) + math.log(1e5) / (ORDERS - 1)
    assert round(float(classic.min()), 2) == figure
    assert epsilon({(sigma, 256 / 60_000): steps}, 1e-5) < figure


def test_rounds_of_another_tool_add_up_below_their_sum():
    """15 steps a round at a rate of 1/3: what users of it know."""
    figures = [round(epsilon({(1.0, 1 / 3): 15 * n}, 1e-5), 2) for n in (1, 2, 3)]
    assert figures == [10.18, 14.21, 17.54]
    assert round(epsilon({(1.0, 0.01): 10_000}, 1e-5), 2) == 6.71


def test_nothing_spent_and_no_noise_are_the_ends_of_the_scale():
    assert (
        epsilon({}, 1e-5) == epsilon({(1.0, 0.1): 0}, 1e-5) == epsilon({(1.0, 0.0): 9}, 1e-5) == 0
    )
    assert epsilon({(0.0, 0.1): 1}, 1e-5) == math.inf


@pytest.mark.slow
def test_steps_without_clients_cost_nothing_and_those_without_noise_everything():
    assert prv_accountant.epsilon({(1.0, 0.0): 10}, 1e-5) == 0.0
    assert prv_accountant.epsilon({(0.0, 0.5): 1, (1.0, 0.1): 1}, 1e-5) == float("inf")


@pytest.mark.parametrize("sigma", [1e-200, 0.01, 0.1, 0.3])
def test_where_hardly_any_noise_is_added_the_figure_is_renyis(sigma):
    """A tighter one would be no number, or take minutes and all the memory."""
    spent = {(sigma, 0.1): 100}
    assert prv_accountant.epsilon(spent, 1e-5) == epsilon(spent, 1e-5) > 100


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.9])
def test_no_figure_is_below_nothing(delta):
    assert prv_accountant.epsilon({(20.0, 0.1): 1}, delta) == 0.0


def test_at_a_delta_too_small_for_the_tighter_accountant_the_figure_is_renyis():
    spent = {(1.0, 0.1): 3}
    assert prv_accountant.epsilon(spent, 1e-30) == epsilon(spent, 1e-30) > 0


@pytest.mark.parametrize(
    ("spent", "by"),
    [({(1.0, 0.01): 1000}, "prv"), ({(4.0, 0.001): 10**6}, "rdp"), ({(40.0, 1e-4): 10**9}, "rdp"),
     ({(1.0, 0.01): 300, (1.5, 0.02): 300}, "prv"), ({(0.3, 0.1): 100}, "rdp"), ({}, "rdp")],
    ids=str,
)  # fmt: skip
def test_the_tighter_accountant_is_asked_only_as_far_as_its_work_is_bounded(spent, by, monkeypatch):
    """A grid of 10^6 steps took minutes, one of 10^9 gigabytes, too."""
    asked = []

    def epsilon_of(used, delta):
        asked.append(prv_accountant.num_points(dict(used), delta))
        return 0.5

    monkeypatch.setattr(prv_accountant, "_epsilon", epsilon_of)
    figure = prv_accountant.measured(spent, 1e-5)
    assert figure.accountant == by and bool(asked) == (by == "prv")
    assert figure.epsilon == (0.5 if asked else epsilon(spent, 1e-5))
    assert all(points <= prv_accountant.MOST_POINTS for points in asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spent",
    quick_some(
        [{(1.0, 0.01): 1000}, {(2.0, 0.01): 5000}, {(1.0, 0.01): 300, (1.5, 0.02): 300}], every=3
    ),
    ids=str,
)  # fmt: skip
def test_the_tighter_figure_and_the_points_of_its_grid_are_those_of_opacus(spent, monkeypatch):
    from opacus.accountants import PRVAccountant
    from opacus.accountants.analysis.prv import Domain

    sizes, create = [], Domain.create_aligned

    def counted(*given):
        sizes.append(create(*given).size)
        return create(*given)

    monkeypatch.setattr(Domain, "create_aligned", counted)
    accountant = PRVAccountant()
    accountant.history = [(*setting, steps) for setting, steps in sorted(spent.items())]
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore")
        expected = accountant.get_epsilon(1e-5)
    assert prv_accountant.measured(spent, 1e-5) == (expected, "prv")
    points = prv_accountant.num_points(spent, 1e-5)
    assert points == pytest.approx(len(spent) * sizes[0], rel=1e-3)


def test_privacy_loss_distributions_are_tighter():
    figure = prv_accountant.epsilon({(1.0, 0.01): 1000}, 1e-5)
    assert 0.8 * epsilon({(1.0, 0.01): 1000}, 1e-5) < figure < epsilon({(1.0, 0.01): 1000}, 1e-5)


@pytest.mark.slow
def test_ten_thousand_entries_are_asked_in_a_moment():
    import time

    account = Account(1e-5)
    entries = [
        Release(noise=f"{n:032x}", step=n, round=n // 10, client=n % 10, level="sample",
              noise_multiplier=1.0, sample_rate=0.01, steps=10)
        for n in range(10_000)
    ]  # fmt: skip
    account.add(entries[:1])
    account.epsilon  # the first use of a setting takes tens of milliseconds
    began = time.process_time()
    account.add(entries[1:])
    assert account.epsilon == epsilon({(1.0, 0.01): 10_000}, 1e-5)
    assert time.process_time() - began < 0.5  # usually some 20 ms


def networks():
    torch.manual_seed(3)
    return {
        "mlp": (nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(9, 6)),
        "cnn": (
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3)),
            torch.randn(9, 1, 6, 6),
        ),
    }


def drawing(_=None):
    """Return what draws the noise of a step."""
    return Secrets(b"", 1).numbers("n")


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_noisy_gradients_agree_with_a_naive_loop(name):
    model, inputs = networks()[name]
    targets = torch.arange(9) % 3
    noise = Noise(multiplier=0.7, max_grad_norm=0.9, expected_examples=7.5)
    loss = nn.functional.cross_entropy
    NoisyGradients(model, loss, noise).fill(Examples((inputs,), targets), torch.arange(9), drawing)
    found = [each.grad.clone() for each in model.parameters()]
    sums, num_clipped = [torch.zeros_like(each) for each in model.parameters()], 0
    for i in range(9):
        model.zero_grad()
        loss(model(inputs[i : i + 1]), targets[i : i + 1]).backward()
        norm = torch.cat([each.grad.flatten() for each in model.parameters()]).norm()
        num_clipped += bool(norm > 0.9)
        for total, each in zip(sums, model.parameters(), strict=True):
            total += each.grad * min(1.0, 0.9 / (norm + 1e-6))
    numbers = drawing()
    assert num_clipped > 0
    for total, gradient in zip(sums, found, strict=True):
        drawn = torch.from_numpy(numbers.standard_normal(total.shape) * 0.63).float()
        torch.testing.assert_close(gradient, (total + drawn) / 7.5, rtol=1e-4, atol=1e-6)


def listened_to(model):
    """Return the model, whose last layer's outputs are changed from outside."""
    model[-1].register_forward_hook(lambda _, __, outputs: 2 * outputs)
    return model


def tied(model):
    model[-1].weight = model[0].weight
    return model


def test_only_chains_of_known_layers_are_summed_layer_by_layer():
    from trainops.kinds.federated.fast.ghost_clipping import can_sum
    from trainops.kinds.federated.recipes.digits import FederatedDigitsParameters as Digits
    from trainops.kinds.federated.recipes.digits_model import _network

    shared = nn.Linear(4, 4)
    assert can_sum(_network(Digits()))
    assert can_sum(_network(Digits(network="cnn", norm="group")))
    for odd in (
        nn.Sequential(shared, shared),
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
        nn.Sequential(nn.Conv2d(2, 4, 3, groups=2)),
        nn.Sequential(nn.Linear(4, 4), nn.PReLU()),
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)),
        listened_to(nn.Sequential(nn.Linear(4, 4), nn.ReLU())),
        nn.Sequential(nn.Flatten(0), nn.Linear(4, 4)),
        nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)),
        tied(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))),
        type("Own", (nn.Sequential,), {})(nn.Linear(4, 4)),
        shared,
    ):
        assert not can_sum(odd), odd


@pytest.mark.parametrize("reduction", ["mean", "weighted"])
@pytest.mark.parametrize("places", [False, True])
def test_layer_by_layer_and_example_by_example_agree(reduction, places):
    """Also where the mean of a batch is not the mean of its examples' losses."""
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(6, 5), nn.Tanh(), nn.Flatten(), nn.Linear(20 if places else 5, 3)
    )
    inputs, targets = torch.randn(9, *([4] if places else []), 6), torch.arange(9) % 3
    weight = torch.tensor([1.0, 5.0, 0.2]) if reduction == "weighted" else None

    def loss(outputs, truth):
        return nn.functional.cross_entropy(outputs, truth, weight=weight)

    noise = Noise(multiplier=0.0, max_grad_norm=0.7, expected_examples=1)
    found = []
    for is_layered in (True, False):
        gradients = NoisyGradients(model, loss, noise)
        assert gradients._layered is not None
        gradients._layered = gradients._layered if is_layered else None
        gradients.fill(Examples((inputs,), targets), torch.arange(9), drawing)
        found.append([each.grad.clone() for each in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


class Scaled(nn.Module):
    """Has a parameter of one number."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(6, 3), nn.Parameter(torch.tensor(2.0))

    def forward(self, values):
        return self.scale * self.layer(values)


@pytest.mark.parametrize(
    "model", [nn.Sequential(nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.Linear(8, 3)), Scaled()],
    ids=["normed", "scaled"],
)  # fmt: skip
def test_groups_of_a_linear_layer_and_single_numbers_are_clipped_alike(model):
    inputs, targets, most = torch.randn(9, 6), torch.arange(9) % 3, 0.7
    noise = Noise(multiplier=0.0, max_grad_norm=most, expected_examples=1)
    gradients = NoisyGradients(model, nn.functional.cross_entropy, noise)
    sums = [torch.zeros_like(each) for each in model.parameters()]
    for i in range(9):
        loss = nn.functional.cross_entropy(model(inputs[i : i + 1]), targets[i : i + 1])
        own = torch.autograd.grad(loss, list(model.parameters()))
        norm = torch.cat([each.flatten() for each in own]).norm()
        for total, each in zip(sums, own, strict=True):
            total += each * min(1.0, most / (norm + 1e-6))
    gradients.fill(Examples((inputs,), targets), torch.arange(9), drawing)
    for total, each in zip(sums, model.parameters(), strict=True):
        torch.testing.assert_close(each.grad, total, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_gradients_of_single_examples_are_those_of_opacus(name):
    from opacus import GradSampleModule

    model, inputs = networks()[name]
    targets = torch.arange(9) % 3
    noise = Noise(multiplier=0.0, max_grad_norm=1.0, expected_examples=9)
    found = NoisyGradients(model, nn.functional.cross_entropy, noise).of_each((inputs,), targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GradSampleModule(model, loss_reduction="sum")
        nn.functional.cross_entropy(theirs(inputs), targets, reduction="sum").backward()
    for name_, parameter in model.named_parameters():
        torch.testing.assert_close(found[name_], parameter.grad_sample, rtol=1e-4, atol=1e-6)


def test_an_empty_batch_is_noise_alone():
    model, inputs = networks()["mlp"]
    noise = Noise(multiplier=1.0, max_grad_norm=1.0, expected_examples=4)
    gradients = NoisyGradients(model, nn.functional.cross_entropy, noise)
    none = torch.empty(0, dtype=torch.int64)
    gradients.fill(Examples((inputs,), torch.zeros(9, dtype=torch.int64)), none,
                   drawing)  # fmt: skip
    flat = torch.cat([each.grad.flatten() for each in model.parameters()])
    assert 0.1 < flat.std() < 0.45


def test_updates_are_clipped_to_their_norm_and_short_ones_kept():
    long, short = torch.full((4,), 3.0), torch.full((4,), 0.1)
    assert 1.49998 < clipped(long, 1.5).norm() <= 1.5
    assert torch.equal(clipped(short, 1.5), short)


def test_the_noise_of_steps_has_the_deviation_that_is_accounted_for():
    numbers = Secrets(b"key", 1).numbers("noise")
    drawn = torch.from_numpy(numbers.standard_normal(200_000))
    assert drawn.std() == pytest.approx(1.0, abs=0.01) and abs(drawn.mean()) < 0.01


def test_other_secrets_and_other_seeds_draw_other_numbers():
    streams = {
        Secrets(secret, seed).draw(16, "noise") for secret in (b"", b"a", b"b") for seed in (0, 1)
    }
    assert len(streams) == 6


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fedavg", pytest.param("fedadam", marks=pytest.mark.slow)])
def test_clients_learn_together(strategy):
    server = {"strategy": strategy, "learning_rate": 0.05 if strategy == "fedadam" else 1.0}
    job = make_job(recipe="federated_digits", rounds=8, clients=5, local_epochs=2,
                   learning_rate=0.01, batch_size=32, server=server,
                   partition={"by": "dirichlet", "alpha": 1.0})  # fmt: skip
    run_through(job)
    assert job.progress.history[-1]["val_accuracy"] > 0.8


def test_the_median_of_an_even_number_is_between_the_two_in_the_middle():
    strategy = make_strategy(ServerConfig.parse({"strategy": "median"}), torch.zeros(1))
    updates = torch.tensor([[9.0], [1.0], [4.0], [2.0]])
    assert strategy.combine(updates, torch.ones(4)).tolist() == [3.0]
