"""Weights move as torch's own optimizer moves them, bit for bit."""

import copy

import pytest
import torch
from torch import nn

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.fast.fused_adam import FusedAdam
from trainops.kinds.rl.networks import perceptron
from trainops.runtime.errors import IncompatibleState, NonFiniteLoss


def config(max_grad_norm):
    return RlConfig(recipe="grid_town", environment_steps=1, max_grad_norm=max_grad_norm)


def losses(network):
    generator = torch.Generator().manual_seed(7)
    while True:
        yield (network(torch.randn(16, 4, generator=generator)) - 3).pow(2).mean()


@pytest.mark.parametrize("max_grad_norm", [None, 0.5, 1e6])
def test_it_is_torchs_adam_and_clipping_whatever_is_loaded_in_between(max_grad_norm):
    torch.manual_seed(1)
    own = perceptron([4, 9, 3])
    theirs = copy.deepcopy(own)
    descent = FusedAdam(own, config(max_grad_norm))
    adam = torch.optim.Adam(theirs.parameters(), fused=True)
    for number, mine, their in zip(range(30), losses(own), losses(theirs), strict=False):
        rate = 0.01 / (1 + number)
        descent.set_rate(rate)
        descent.move(mine, number)
        adam.param_groups[0]["lr"] = rate
        adam.zero_grad()
        their.backward()
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), max_grad_norm)
        adam.step()
        for one, other in zip(own.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(one, other)
        if number % 7 == 3:
            saved = copy.deepcopy(descent.state_dict())
            descent = FusedAdam(own, config(max_grad_norm))
            descent.load_state_dict(saved)
    found, expected = descent.state_dict(), adam.state_dict()
    assert found["param_groups"] == expected["param_groups"]
    for index, moments in expected["state"].items():
        for name, value in moments.items():
            assert torch.equal(found["state"][index][name], value)


def test_a_loss_that_is_not_finite_moves_nothing():
    network = perceptron([4, 3])
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(NonFiniteLoss):
        FusedAdam(network, config(10.0)).move(network(torch.full((2, 4), torch.inf)).sum(), 5)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])


def test_moments_of_another_network_are_refused():
    other = FusedAdam(perceptron([4, 5]), config(None)).state_dict()
    with pytest.raises(IncompatibleState, match="moments of parameter 0"):
        FusedAdam(perceptron([4, 3]), config(None)).load_state_dict(other)
