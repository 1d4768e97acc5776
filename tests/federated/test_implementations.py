"""The fast and the plain implementation of federated training agree.

Both add the same numbers in another order. In float64 each of the at most some hundred additions
and products of a result rounds by 1e-16 of numbers of about 1, so results differ by far less than
1e-10; a wrong factor or a missing term would be larger by orders of magnitude. Sequential clients
with SGD are equal bit for bit.
"""

import copy
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.federated.runs import ServerLedger, case, go, make_job, run_through
from tests.thinning import quick_some
from trainops.kinds.federated import plain
from trainops.kinds.federated.fast import losses, vectorised_mlp
from trainops.kinds.federated.fast.ghost_clipping import GhostClippedSums
from trainops.kinds.federated.fast.optimizer import ClientOptimizer
from trainops.kinds.federated.implementation import ghost_clipped_sums
from trainops.kinds.federated.parameter_layout import ParameterLayout
from trainops.kinds.federated.private import Noise, NoisyGradients
from trainops.learning.ingredients import Examples
from trainops.runtime import reproducibility

pytestmark = pytest.mark.slow

CLOSE = {"rtol": 1e-10, "atol": 1e-11}
CONFIGS = [
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1},
    {"optimizer": "adam", "weight_decay": 0.1},
    {"optimizer": "adamw", "weight_decay": 0.1},
]
UNEVEN = {"partition": {"by": "dirichlet", "alpha": 0.7}, "batch_size": 5, "fraction": 0.8}
STRATEGIES = ["fedavg", "fedprox", "fedadam", "median"]
LAYERS = [each for each in vectorised_mlp.OTHERS if each not in (nn.Flatten, nn.Dropout)]
drawn = settings(max_examples=40, deadline=None, database=None, derandomize=True)


@pytest.fixture
def _double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def ended(value, monkeypatch, keeping="none", ledger=None, **config):
    """Return a completed job under TRAINOPS_PLAIN=1 (plain) or 0 (fast)."""
    monkeypatch.setenv("TRAINOPS_PLAIN", value)
    reproducibility.seed_all(7)
    job = make_job(keeping, ledger, **{"parameters": {"dropout": 0.0}, **config})
    return job, run_through(job)


@pytest.mark.usefixtures("_double_precision")
@pytest.mark.parametrize(
    ("config", "is_batched", "strategy"),
    quick_some([*product(CONFIGS, [False, True], STRATEGIES)], every=5),
)
def test_runs_agree(config, is_batched, strategy, monkeypatch):
    config = {**UNEVEN, **config, "batched_clients": is_batched, "server": {"strategy": strategy}}
    (fast, points), (slow, others) = (ended(value, monkeypatch, **config) for value in "01")
    torch.testing.assert_close(fast.server.parameters, slow.server.parameters, **CLOSE)
    assert points.keys() == others.keys()
    for step, found in points.items():
        assert found == pytest.approx(others[step], rel=1e-9)


@pytest.mark.parametrize(
    ("config", "strategy", "dtype"),
    quick_some([*product(CONFIGS[:2], STRATEGIES, [torch.float32, torch.float64])], every=3),
)
def test_sequential_clients_with_sgd_are_equal(config, strategy, dtype, monkeypatch):
    config = {**UNEVEN, **config, "server": {"strategy": strategy}}
    torch.set_default_dtype(dtype)
    try:
        (fast, points), (slow, others) = (ended(value, monkeypatch, **config) for value in "01")
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(fast.server.parameters, slow.server.parameters)
    assert points == others


@pytest.mark.slow
@drawn
@given(config=st.sampled_from(CONFIGS), clients=st.integers(1, 4), size=st.integers(1, 40),
       seed=st.integers(0, 999),
       counts=st.lists(st.integers(1, 4), min_size=1, max_size=6))  # fmt: skip
def test_optimizers_of_drawn_rows_agree(config, clients, size, seed, counts):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(clients, size, generator=generator, dtype=torch.float64)
    others, config = rows.clone(), make_job(learning_rate=0.05, **config).config
    fast, slow = ClientOptimizer(config, rows), plain.PlainClientOptimizer(config, others)
    for count in sorted((min(each, clients) for each in counts), reverse=True):
        gradients = torch.randn(count, size, generator=generator, dtype=torch.float64)
        fast.move(rows[:count], gradients.clone())
        slow.move(others[:count], gradients.clone())
        saved = copy.deepcopy(fast.state_dict())  # each continues from the state of the other
        fast.load_state_dict(slow.state_dict())
        slow.load_state_dict(saved)
    torch.testing.assert_close(rows, others, **CLOSE)
    torch.testing.assert_close(fast.state_dict(), slow.state_dict(), **CLOSE)


@drawn
@given(sizes=st.lists(st.integers(1, 12), min_size=2, max_size=4), count=st.integers(1, 4),
       batch=st.integers(1, 9), layer=st.sampled_from(LAYERS), has_bias=st.booleans(),
       seed=st.integers(0, 999))  # fmt: skip
def test_drawn_models_and_their_gradients_agree(sizes, count, batch, layer, has_bias, seed):
    torch.manual_seed(seed)
    chain = []
    for entering, leaving in pairwise(sizes):
        chain += [nn.Linear(entering, leaving, bias=has_bias), layer()]
    layout = ParameterLayout(nn.Sequential(*chain).double())
    rows = torch.randn(count, len(layout.values), dtype=torch.float64)
    inputs = torch.randn(count, batch, sizes[0], dtype=torch.float64)
    cotangents = torch.randn(count, batch, sizes[-1], dtype=torch.float64)
    found = []
    for many_models in (vectorised_mlp.many_models, plain.many_models):
        outputs, pull = many_models(layout)(rows)((inputs,))
        found.append((outputs, pull(cotangents)))
    torch.testing.assert_close(*found, **CLOSE)


@drawn
@given(count=st.integers(1, 4), batch=st.integers(1, 9), classes=st.integers(2, 12),
       seed=st.integers(0, 999), is_of_classes=st.booleans())  # fmt: skip
def test_drawn_losses_and_their_gradients_agree(count, batch, classes, seed, is_of_classes):
    generator = torch.Generator().manual_seed(seed)
    shape = (count, batch, classes)
    outputs = torch.randn(shape, generator=generator, dtype=torch.float64)
    shares = torch.rand(shape[:2], generator=generator, dtype=torch.float64)
    loss = nn.functional.cross_entropy if is_of_classes else nn.functional.mse_loss
    targets = (
        torch.randint(classes, shape[:2], generator=generator)
        if is_of_classes
        else torch.rand(shape, generator=generator, dtype=torch.float64)
    )
    found = [each.losses_of(loss)(outputs, targets, shares) for each in (losses, plain)]
    torch.testing.assert_close(*found, **CLOSE)


def chain_of(channels, size, classes, *, is_convolution):
    if not is_convolution:
        layers = nn.Flatten(), nn.Linear(channels * size**2, 5), nn.Tanh(), nn.Linear(5, classes)
        return nn.Sequential(*layers).double()
    layers = nn.Conv2d(channels, 2, 2, padding=1), nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(2 * (size + 1) ** 2, classes)).double()


@pytest.mark.slow
@drawn
@given(batch=st.integers(1, 9), channels=st.integers(1, 3), size=st.integers(2, 4),
       classes=st.integers(2, 5), is_convolution=st.booleans(), seed=st.integers(0, 999),
       max_norm=st.floats(0.01, 100))  # fmt: skip
def test_clipped_sums_of_drawn_models_agree(
    batch, channels, size, classes, is_convolution, seed, max_norm
):
    torch.manual_seed(seed)
    model = chain_of(channels, size, classes, is_convolution=is_convolution)
    inputs = torch.randn(batch, channels, size, size, dtype=torch.float64)
    examples = Examples((inputs,), torch.randint(classes, (batch,)))
    noise = Noise(multiplier=0.0, max_grad_norm=max_norm, expected_examples=batch)
    found = []
    for value in "01":
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("TRAINOPS_PLAIN", value)
            gradients = NoisyGradients(model, nn.functional.cross_entropy, noise)
            is_fast = ghost_clipped_sums(model, nn.functional.cross_entropy) is not None
        assert is_fast is (value == "0")
        gradients.fill(
            examples, torch.arange(batch), lambda _: np.random.default_rng(0)
        )  # its noise is multiplied by zero
        found.append([each.grad for each in model.parameters()])
    torch.testing.assert_close(*found, **CLOSE)


def test_ghost_clipping_is_selected_where_the_model_allows_it(monkeypatch):
    model = chain_of(1, 2, 2, is_convolution=False)
    for value, expected in (("0", GhostClippedSums), ("1", type(None))):
        monkeypatch.setenv("TRAINOPS_PLAIN", value)
        assert type(ghost_clipped_sums(model, nn.functional.cross_entropy)) is expected


@pytest.mark.parametrize("order", ["01", "10"])
@pytest.mark.parametrize("is_batched", [False, True])
def test_a_receipt_names_the_other_implementation(is_batched, order, monkeypatch, tmp_path):
    tried, ledger = case("none", batched_clients=is_batched), ServerLedger()
    monkeypatch.setenv("TRAINOPS_PLAIN", order[0])
    first = go(tried, tmp_path, ledger, at=8)
    monkeypatch.setenv("TRAINOPS_PLAIN", order[1])
    second = go(tried, tmp_path, ledger, resume=first.checkpoints, number=2)
    (receipt,) = second.receipts
    assert not receipt.exact
    (item,) = [each for each in receipt.items if not each.exact]
    names = {"0": "fast", "1": "plain"}
    assert item.part == "implementation"
    assert item.note == f"was {names[order[0]]}, is {names[order[1]]}"


@pytest.mark.parametrize("keeping", ["sample", "user"])
def test_releases_of_both_have_other_names(keeping, monkeypatch):
    """Their sums differ in the last bits, and two sums never have the same noise."""
    ledgers = [ServerLedger(), ServerLedger()]
    for value, ledger in zip("01", ledgers, strict=True):
        ended(value, monkeypatch, keeping, ledger)
    fast, slow = ({entry.noise for entry in each.releases()} for each in ledgers)
    assert fast and slow and not fast & slow


@pytest.mark.slow
@pytest.mark.parametrize("keeping", ["none", "hybrid"])
def test_a_plain_run_resumes_exactly(keeping, monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINOPS_PLAIN", "1")
    tried = case(keeping)
    expected = go(tried, tmp_path / "whole", ServerLedger())
    ledger = ServerLedger()
    first = go(tried, tmp_path / "stopped", ledger, at=9)
    second = go(tried, tmp_path / "stopped", ledger, resume=first.checkpoints, number=2)
    assert all(receipt.exact for receipt in second.receipts)
    last, other = (each.checkpoints[-1].path / "model.pt" for each in (expected, second))
    assert last.read_bytes() == other.read_bytes()
