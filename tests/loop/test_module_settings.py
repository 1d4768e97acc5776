"""Each setting of a training module, and drawn combinations: stopped and resumed, the end is equal.

The exhaustive product is that of `PRODUCT`.
"""

import random
from itertools import product

import pytest
import torch

from tests.engines.contract import require_drawn, require_stop_changes_nothing, undisturbed
from tests.loop.test_modules import case
from tests.thinning import some_of
from trainops.kinds.loop.options import OPTIMIZERS, SCHEDULE_OPTIONS

pytestmark = pytest.mark.slow

VALUES = {
    "step_size": 1, "gamma": 0.5, "milestones": [1.0, 2.0], "T_0": 2, "base_lr": 0.01,
    "max_lr": 0.1,
}  # fmt: skip
SCHEDULES = [
    "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LinearLR", "MultiStepLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "StepLR",
]  # fmt: skip
NOT_HERE = {"Muon", "SparseAdam"}  # for matrices only, for sparse gradients only
PRODUCT = list(
    product((1, 3), (1, 2), ("fp32", "bf16"), (0, 2), (None, 0.9), (None, 0.5), (None, 2))
)


def require_exact(found, root, at):
    expected = undisturbed(found, root)
    require_stop_changes_nothing(found, root / "stopped", expected, at)
    return expected


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - NOT_HERE))
def test_each_optimizer_is_resumed_exactly(tmp_path, name):
    require_exact(case(optimizer={"name": name, "learning_rate": 0.01}), tmp_path, [3, 8])


@pytest.mark.parametrize(
    ("name", "interval"), some_of([*product(SCHEDULES, ["step", "epoch"])], every=3)
)
def test_each_schedule_is_resumed_exactly(tmp_path, name, interval):
    known = SCHEDULE_OPTIONS[name].model_fields
    options = {each: VALUES[each] for each, field in known.items() if field.is_required()}
    if name == "CyclicLR":
        options |= {"cycle_momentum": False}
    schedule = {"name": name, "interval": interval, "options": options}
    require_exact(case(epochs=3, schedule=schedule), tmp_path, [3, 8])


def test_activation_checkpointing_changes_nothing(tmp_path):
    with_it = require_exact(case(checkpointing=True), tmp_path / "with", [3, 8])
    without = undisturbed(case(), tmp_path / "without")
    one, other = (
        torch.load(each.checkpoints[-1].path / "model.pt", weights_only=True)  # noqa: TID251
        for each in (with_it, without)
    )
    # Batch normalisation counts the second forward pass, too.
    assert torch.equal(one["head.weight"], other["head.weight"])


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch, in torch
def test_a_compiled_module_is_resumed_exactly(tmp_path):
    require_exact(case(compile=True, epochs=2), tmp_path, [2, 7])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_fp16_is_resumed_exactly(tmp_path):
    require_exact(case(precision="fp16", max_grad_norm=0.5, accumulation=3), tmp_path, [2, 3])


@pytest.mark.parametrize("number", some_of(range(len(PRODUCT)), every=32))
def test_a_drawn_combination_is_resumed_exactly(tmp_path, number):
    names = (
        "accumulation", "optimizers", "precision", "num_workers", "ema_decay", "max_grad_norm",
        "validate_every_steps",
    )  # fmt: skip
    order = random.Random(0).sample(PRODUCT, len(PRODUCT))
    found = case(**dict(zip(names, order[number], strict=True)))
    require_drawn(found, tmp_path, random.Random(number))
