"""LightningModules end as with Lightning's own Trainer, also when they are stopped and resumed."""

import random
import warnings
from dataclasses import replace

import pytest
import torch

from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    bytes_of,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from trainops.runtime import reproducibility
from trainops.runtime.errors import NotExact
from trainops.runtime.loop import Failed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning's CombinedLoader
]
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
    "seldom": {"scheduler": "seldom"},
    "by-epoch": {"scheduler": "epoch", "gradient_clip_val": 0.1,
                 "gradient_clip_algorithm": "value"},
    "plateau": {"scheduler": "plateau", "max_epochs": 6},
    "several": {"module": "several", "scheduler": "plateau", "val_check_interval": 3,
                "accumulate_grad_batches": 2},
    "plain-iterable": {"iterable": "plain", "accumulate_grad_batches": 4, "scheduler": "epoch"},
    "stateful-iterable": {"iterable": "stateful", "accumulate_grad_batches": 3,
                          "scheduler": "plateau", "val_check_interval": 2},
    "limited": {"module": "several", "limit_train_batches": 4, "limit_val_batches": 1,
                "accumulate_grad_batches": 3, "scheduler": "step"},
    "not-validated": {"limit_train_batches": 3, "limit_val_batches": 0, "scheduler": "epoch"},
    "limited-iterable": {"iterable": "plain", "limit_train_batches": 3, "limit_val_batches": 1,
                         "accumulate_grad_batches": 2, "scheduler": "step"},
    "limited-stateful": {"iterable": "stateful", "limit_train_batches": 2, "scheduler": "epoch",
                         "max_epochs": 2},
    "limited-anew": {"iterable": "anew", "limit_train_batches": 3, "limit_val_batches": 2,
                     "accumulate_grad_batches": 2, "val_check_interval": 2},
    "undecodable": {"damaged": True, "skip_undecodable": True, "accumulate_grad_batches": 4},
    "rarely": {"check_val_every_n_epoch": 2},
    "together": {"combined": "list", "accumulate_grad_batches": 4, "val_check_interval": 3},
    "together-min": {"combined": "min_size", "limit_val_batches": 1},
    "together-max": {"combined": "max_size", "limit_train_batches": 5},
    "together-cycle": {"combined": "max_size_cycle", "max_steps": 9},
    "steps": {"max_steps": 5, "accumulate_grad_batches": 4, "scheduler": "step"},
    "steps-manual": {"module": "manual", "max_steps": 10},
    "steps-iterable": {"iterable": "stateful", "max_steps": 7, "val_check_interval": 2},
}  # fmt: skip


def by_lightning(given, root):
    """Return the module that Lightning's Trainer has trained."""
    from tests.loop.lit_module import make

    parameters = {"max_epochs": 3, **given}
    settings = {
        name: value
        for name, value in parameters.items()
        if name
        not in ("module", "scheduler", "iterable", "combined", "damaged", "skip_undecodable")
    }
    if "max_steps" in settings:
        settings["max_epochs"] = -1
    from tests.loop.lit import Parameters

    reproducibility.seed_all(SEED)
    # the oracle of what skips an example is a training without that example
    module, data = make(None, Parameters.parse(parameters | {"skip_undecodable": False}))
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
    points = {each for one in done.progress for each in one.metrics}
    assert ("val_batch_step/dataloader_idx_1" in points) == (name in ("several", "limited"))
    # Lightning shows callbacks no values of single batches of a validation
    found = {each for each in found if not each.startswith("val_batch_step")}
    if name == "undecodable":
        assert all(
            [each[count] for each in done.curve.values() if count in each] == [1, 2, 3]
            for count in ("train_undecodable", "validation_undecodable")
        )
        found -= {"train_undecodable", "validation_undecodable"}
    assert found <= expected.keys() | {"train_loss"}
    logged = torch.load(done.checkpoints[-1].path / "logged.pt", weights_only=True)  # noqa: TID251
    validated = {each: value for each, value in expected.items() if each.startswith("val_")}
    # the mean of Lightning is of float32
    latest = {each: float(logged["latest"][each]) for each in validated}
    assert latest == pytest.approx(validated, rel=1e-5)


@pytest.mark.parametrize("name", ["limited-stateful", "limited-anew"])
def test_a_stop_changes_nothing_with_a_limit_for_an_iterable_dataset(tmp_path, name):
    found = case(device="cpu", **CASES[name])
    expected = undisturbed(found, tmp_path)
    stops = range(1, expected.progress[-1].step)
    require_stop_changes_nothing(found, tmp_path / "stops", expected, stops)


def test_a_stop_changes_nothing_where_a_pass_was_ended_by_its_limit(tmp_path):
    """A validation of two batches stands between the two passes."""
    found = case(device="cpu", iterable="anew", limit_train_batches=2, max_epochs=4)
    expected = undisturbed(found, tmp_path)
    stops = range(1, expected.progress[-1].step)
    require_stop_changes_nothing(found, tmp_path / "stops", expected, stops)


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


def test_an_iterable_dataset_without_a_state_is_refused_where_exact_is_required(tmp_path):
    found = case(iterable="plain")
    required = replace(found, config=found.config | {"exact": "required"})
    outcome = attempt(required, tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Failed) and isinstance(outcome.error, NotExact), outcome
    assert "train: the loader has no state" in str(outcome.error)
    assert "validation: the loader has no state" in str(outcome.error)


def test_a_limit_beyond_the_end_of_an_iterable_dataset_changes_nothing(tmp_path):
    given = {"iterable": "plain", "accumulate_grad_batches": 4, "scheduler": "plateau"}
    limited = case(**given, limit_train_batches=50, limit_val_batches=50)
    expected = undisturbed(case(**given), tmp_path / "whole")
    found = undisturbed(limited, tmp_path / "limited")
    assert (
        bytes_of(found.checkpoints[-1])["model.pt"]
        == (bytes_of(expected.checkpoints[-1])["model.pt"])
    )
    assert found.curve == expected.curve
    require_stop_changes_nothing(limited, tmp_path / "stops", found, [1, 2, 5])


def test_a_log_says_that_nothing_of_an_iterable_dataset_is_skipped(tmp_path, caplog):
    undisturbed(case(iterable="plain", skip_undecodable=True, max_epochs=1), tmp_path)
    for name in ("train", "validation"):
        says = f"skip_undecodable has no effect on the iterable dataset of {name!r}"
        assert says in caplog.text
