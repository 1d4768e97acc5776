"""LightningModules end as with Lightning's own Trainer, also when they are stopped and resumed."""

import random
import warnings

import pytest
import torch

from tests.engines.contract import (
    Case,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from trainops.runtime import reproducibility

pytestmark = pytest.mark.slow
lightning = pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
SEED = 7  # that of the contract


def case(device="auto", **parameters):
    parameters = {"max_epochs": 3} | parameters
    config = {"recipe": "lit", "parameters": parameters, "log_every_steps": 2, "threads": 1}
    config["device"] = device
    return Case("loop", "lit", config, ())


CASES = {
    "automatic": {},
    "everything": {
        "accumulate_grad_batches": 4, "gradient_clip_val": 0.1, "precision": "bf16-mixed",
        "scheduler": "plateau", "val_check_interval": 3,
    },
    "manual": {"module": "manual"},
    "by-step": {"scheduler": "step", "accumulate_grad_batches": 2},
    "by-epoch": {"scheduler": "epoch", "gradient_clip_val": 0.1,
                 "gradient_clip_algorithm": "value"},
    "plateau": {"scheduler": "plateau", "max_epochs": 6},
    "rarely": {"check_val_every_n_epoch": 2},
}  # fmt: skip


def by_lightning(given, root):
    """Return the module that Lightning's Trainer has trained."""
    from tests.loop.lit_module import make

    parameters = {"max_epochs": 3, **given}
    settings = {
        name: value for name, value in parameters.items() if name not in ("module", "scheduler")
    }
    from tests.loop.lit import Parameters

    reproducibility.seed_all(SEED)
    module, data = make(None, Parameters.parse(parameters))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=root, **settings,
        )  # fmt: skip
        trainer.fit(module, data)
    return module, trainer


@pytest.mark.parametrize("name", CASES)
def test_the_weights_are_those_of_lightnings_trainer(tmp_path, name):
    done = undisturbed(case(device="cpu", **CASES[name]), tmp_path)
    module, trainer = by_lightning(CASES[name], tmp_path / "lightning")
    saved = torch.load(done.checkpoints[-1].path / "model.pt", weights_only=True)  # noqa: TID251
    for key, value in module.state_dict().items():
        assert torch.equal(saved[key], value), key
    expected = {name: float(value) for name, value in trainer.callback_metrics.items()}
    found = done.progress[-1].metrics
    assert found.keys() <= expected.keys() | {"train_loss"}


def test_a_lightning_module_stopped_at_a_step_ends_the_same(tmp_path):
    found = case(**CASES["everything"])
    expected = undisturbed(found, tmp_path)
    require_stop_changes_nothing(found, tmp_path / "stops", expected, [1, 3, 8])


@pytest.mark.parametrize("name", CASES)
def test_a_lightning_module_stopped_or_killed_anywhere_ends_the_same(tmp_path, name):
    found, rng = case(**CASES[name]), random.Random(name)
    expected = undisturbed(found, tmp_path)
    steps = sorted({each.step for each in expected.progress})[:-1]
    require_stop_changes_nothing(found, tmp_path / "all", expected, steps)
    for at in rng.sample(steps[1:], 3):
        require_stop_changes_nothing(found, tmp_path / f"stop{at}", expected, [at - 1, at])
        require_death_changes_nothing(found, tmp_path / f"death{at}", expected, at, 2)
