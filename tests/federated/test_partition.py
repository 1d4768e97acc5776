"""Shares of a Dirichlet distribution are drawn by the generator that is given."""

import pytest
import torch
from torch.distributions import Dirichlet

from trainops.kinds.federated.partition import _sample


@pytest.mark.parametrize("alpha", [0.1, 0.7, 5.0])
def test_a_sample_moves_only_its_own_generator(alpha):
    own, other = (torch.Generator().manual_seed(5) for _ in range(2))
    concentration = torch.full((4,), alpha, dtype=torch.float64)
    before = torch.get_rng_state()
    for _ in range(3):
        sample = _sample(Dirichlet(concentration), own)
        # The operator that versions until 0.1 called: partitions stay what they were.
        assert torch.equal(sample, torch._sample_dirichlet(concentration, generator=other))
        assert torch.equal(own.get_state(), other.get_state())
    assert torch.equal(torch.get_rng_state(), before)
