"""What no example and no client can do, whatever its numbers: stand out of what is released."""

import copy
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.federated.runs import make_job, run_through
from tests.thinning import quick_some
from trainops.kinds.federated.clipping import clipped
from trainops.kinds.federated.private import Noise, NoisyGradients
from trainops.learning.ingredients import Examples

MOST = 0.75
TYPES = {"float32": torch.float32, "float64": torch.float64}
LARGEST = {"float32": 38, "float64": 307}
ODD = [float("nan"), float("inf"), -float("inf")]


class Apart(nn.Module):
    """A perceptron that no rule for layers is for: each example is seen alone."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2, bias=False)

    def forward(self, values):
        return self.last(torch.tanh(self.first(values)))


def model_of(way, dtype):
    torch.manual_seed(3)
    if way == "example by example":
        return Apart().to(dtype)
    if way == "convolution":
        layers = nn.Conv2d(1, 2, 2), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(4, 2)
        return nn.Sequential(*layers).to(dtype)
    if way == "places":
        return nn.Sequential(nn.Linear(3, 2), nn.Flatten(), nn.Linear(4, 2)).to(dtype)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False)).to(dtype)


SHAPES = {"layer by layer": (3,), "example by example": (3,), "places": (2, 3),
          "convolution": (1, 2, 3)}  # fmt: skip
WAYS = tuple(SHAPES)


def product(outputs, targets):
    """A loss whose gradient is as large as its targets are."""
    return (outputs * targets).sum(dim=1).mean()


def sum_of(model, inputs, targets, most=MOST):
    """Return the sum of the examples' clipped gradients, flat."""
    noise = Noise(multiplier=0.0, max_grad_norm=most, expected_examples=1)

    def numbers(_):
        return np.random.default_rng(0)

    NoisyGradients(model, product, noise).fill(
        Examples((inputs,), targets), torch.arange(len(targets)), numbers
    )
    return torch.cat([each.grad.flatten() for each in model.parameters()])


def by_hand(model, inputs, targets, most=MOST):
    """Return the same in float64, one example after the other."""
    twin, total = copy.deepcopy(model).double(), 0.0
    for i in range(len(targets)):
        loss = product(twin(inputs[i : i + 1].double()), targets[i : i + 1].double())
        own = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(twin.parameters()))])
        if bool(torch.isfinite(own).all()):
            largest = float(own.abs().max()) or 1.0
            norm = largest * float((own / largest).norm())
            total = total + own * min(1.0, most / norm if norm else 1.0)
    return total


def numbers_of(dtype):
    """Return a strategy of numbers of every size, and such as are none."""
    sized = st.builds(
        lambda sign, digits, power: sign * digits * 10.0**power,
        st.sampled_from([-1, 1]), st.floats(1, 3), st.integers(-LARGEST[dtype], LARGEST[dtype]),
    )  # fmt: skip
    return st.one_of(st.sampled_from([*ODD, 0.0, 1.0]), st.floats(-3, 3), sized)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "dtype"), quick_some([*itertools.product(WAYS, TYPES)], every=7))
@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(data=st.data())
def test_no_example_adds_more_than_the_bound(way, dtype, data):
    shape, figures = SHAPES[way], numbers_of(dtype)
    count = int(np.prod(shape))
    plain = data.draw(st.lists(figures, min_size=count, max_size=count), label="inputs")
    values = data.draw(st.lists(figures, min_size=2, max_size=2), label="targets")
    inputs = torch.tensor(plain, dtype=TYPES[dtype]).view(1, *shape)
    targets = torch.tensor(values, dtype=TYPES[dtype]).view(1, 2)
    found = sum_of(model_of(way, TYPES[dtype]), inputs, targets).double()
    assert bool(torch.isfinite(found).all())
    assert float(found.norm()) <= MOST


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e3, 1e18, 1e20, 1e30, 1e36])
def test_clipped_gradients_are_those_of_float64_by_hand_at_every_size(way, size):
    model = model_of(way, torch.float32)
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(5, *SHAPES[way], generator=generator)
    targets = torch.randn(5, 2, generator=generator) * torch.tensor([size, 1, 1, 1, 1]).view(5, 1)
    found, expected = sum_of(model, inputs, targets), by_hand(model, inputs, targets)
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=4e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("where", ["inputs", "targets"])
def test_an_example_that_is_no_number_adds_nothing_and_disturbs_no_other(way, odd, where):
    model = model_of(way, torch.float32)
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(5, *SHAPES[way], generator=generator)
    targets = torch.randn(5, 2, generator=generator)
    (inputs if where == "inputs" else targets)[2].view(-1)[0] = odd
    others = torch.tensor([0, 1, 3, 4])
    found = sum_of(model, inputs, targets)
    expected = sum_of(model, inputs[others], targets[others])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", quick_some(TYPES, every=2))
@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(data=st.data())
def test_no_client_sends_more_than_the_bound(dtype, data):
    drawn = data.draw(st.lists(numbers_of(dtype), min_size=1, max_size=6))
    update = torch.tensor(drawn, dtype=TYPES[dtype])
    found = clipped(update, MOST)
    assert bool(torch.isfinite(found).all()) and float(found.double().norm()) <= MOST
    if not bool(torch.isfinite(update).all()):
        assert not found.any(), "it sends nothing"


@pytest.mark.parametrize("size", [1e19, 1e30, 3e38])
def test_an_update_whose_square_is_too_large_keeps_its_direction(size):
    update = torch.tensor([1.0, -2.0, 0.5]) / 2 * size
    expected = update.double() / update.double().norm() * MOST
    torch.testing.assert_close(clipped(update, MOST).double(), expected, rtol=2e-5, atol=0)


@pytest.mark.parametrize(
    ("mode", "odd"),
    quick_some(
        [
            *itertools.product(
                ["sample", "hybrid", "user", "user, all at once"], ["nan", "inf", "1e30"]
            )
        ],
        every=4,
    ),
)
def test_one_odd_example_does_not_end_a_private_run(mode, odd):
    mode, _, at_once = mode.partition(",")
    job = make_job(mode, batched_clients=bool(at_once))
    job.context.train.inputs[0][3] = float(odd)
    run_through(job)
    assert job.progress.is_over
    assert bool(torch.isfinite(job.server.parameters).all())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("odd", [*ODD, 1e30], ids=str)
def test_what_others_add_is_the_same_to_the_last_bit(way, odd):
    """Beside an example that adds zeros, or whose part can be taken away again."""
    model = model_of(way, torch.float32)
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(5, *SHAPES[way], generator=generator)
    targets = torch.randn(5, 2, generator=generator)
    targets[2] = 0.0  # no gradient
    expected = sum_of(model, inputs, targets)
    targets[2] = 0.0 if odd == 1e30 else odd
    inputs[2] = odd
    assert torch.equal(sum_of(model, inputs, targets), expected)
