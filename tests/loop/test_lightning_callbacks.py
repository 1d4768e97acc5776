"""Callbacks are called as by Lightning's own Trainer, also when it is stopped and resumed."""

import random
import warnings

import pytest
import torch

from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from trainops.kinds.loop.metric_states import decode
from trainops.runtime import reproducibility
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Failed

pytestmark = pytest.mark.slow
lightning = pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
SEED = 7  # that of the contract
CASES = {
    "early": (["early", "recorder"], {"max_epochs": 9}),
    "early-within-epochs": (
        ["recorder", "early-validation"],
        {"max_epochs": 9, "val_check_interval": 2, "accumulate_grad_batches": 2},
    ),
    "early-by-training": (
        ["early-training", "recorder", "rates"], {"max_epochs": 9, "scheduler": "epoch"}
    ),
    "meddler": (["meddler", "recorder"], {"accumulate_grad_batches": 4, "scheduler": "step"}),
    "stateful": (["stateful", "recorder"], {"check_val_every_n_epoch": 2}),
    "manual": (["recorder", "meddler"], {"module": "manual"}),
    "not-called": (["summary", "recorder", "bar", "best"], {"max_epochs": 1}),
    "several": (["recorder", "early-far"], {"module": "several", "max_epochs": 9}),
}  # fmt: skip


def case(name):
    callbacks, given = CASES[name]
    parameters = {"max_epochs": 3, "callbacks": callbacks} | given
    config = {"recipe": "lit", "parameters": parameters, "log_every_steps": 1, "threads": 1}
    return Case("loop", name, config | {"device": "cpu"}, ())


def by_lightning(name, root):
    """Return the module that Lightning's Trainer has trained, and the events."""
    from tests.loop.lit import Parameters
    from tests.loop.lit_callbacks import Recorder
    from tests.loop.lit_module import make

    parameters = case(name).config["parameters"]
    without = ("module", "scheduler", "callbacks")
    settings = {name: each for name, each in parameters.items() if name not in without}
    reproducibility.seed_all(SEED)
    module, data, callbacks = make(None, Parameters.parse(parameters))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning.Trainer(
            accelerator="cpu", logger="rates" in parameters["callbacks"], callbacks=callbacks,
            enable_checkpointing=name == "not-called", enable_progress_bar=name == "not-called",
            enable_model_summary=name == "not-called",
            num_sanity_val_steps=0, default_root_dir=root, **settings,
        ).fit(module, data)  # fmt: skip
    (recorder,) = (each for each in callbacks if isinstance(each, Recorder))
    return module, recorder.events


def loaded(heard, part):
    path = heard.checkpoints[-1].path / f"{part}.pt"
    return torch.load(path, weights_only=True)  # noqa: TID251


@pytest.mark.parametrize("name", CASES)
def test_weights_and_events_are_those_of_lightnings_trainer(tmp_path, name):
    done = undisturbed(case(name), tmp_path)
    module, events = by_lightning(name, tmp_path / "lightning")
    saved, callbacks = loaded(done, "model"), loaded(done, "callbacks")
    for key, value in module.state_dict().items():
        assert torch.equal(saved[key], value), key
    state = callbacks["states"][callbacks["names"].index("Recorder")]
    found = decode(state["changed"]["events"])
    assert [each[:4] for each in found] == [each[:4] for each in events]
    for one, other in zip(found, events, strict=True):
        # Lightning leaves out names that were not read yet, has torchmetrics also per step, and
        # its means of epochs are of float32.
        names = (other[4].keys() & one[4].keys()) - {"train_error"}
        shared = {each: one[4][each] for each in names}
        assert shared == pytest.approx({each: other[4][each] for each in shared}, rel=1e-5), one
        if one[0] == "on_validation_end":
            assert {"val_loss", "val_loss/dataloader_idx_1"} & shared.keys()
        if one[0] == "on_train_epoch_end" and "module" not in CASES[name][1]:
            assert "train_root_epoch" in shared


@pytest.mark.parametrize("name", CASES)
def test_a_module_with_callbacks_stopped_or_killed_anywhere_ends_the_same(tmp_path, name):
    found, rng = case(name), random.Random(name)
    expected = undisturbed(found, tmp_path)
    steps = sorted({each.step for each in expected.progress})[:-1]
    require_stop_changes_nothing(found, tmp_path / "all", expected, steps)
    for at in rng.sample(steps[1:], 3):
        require_stop_changes_nothing(found, tmp_path / f"stop{at}", expected, [at - 1, at])
        require_death_changes_nothing(found, tmp_path / f"death{at}", expected, at, 2)


def test_a_learning_rate_monitor_adds_points(tmp_path):
    done = undisturbed(case("early-by-training"), tmp_path)
    found = [each.metrics["lr-AdamW"] for each in done.progress if "lr-AdamW" in each.metrics]
    assert found[:2] == [0.05, 0.025]


def refused(monkeypatch, tmp_path, callback, configured=None):
    from tests.loop.lit_module import Automatic, Data
    from trainops.kinds.loop.lightning import lightning_loop

    module = Automatic()
    if configured is not None:
        module.configure_callbacks = lambda: configured
    made = lightning_loop(lambda *_: (module, Data(), [callback] if callback else []))
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: made)
    config = {"recipe": "lit", "parameters": {}, "device": "cpu"}
    outcome = attempt(Case("loop", "wrong", config, ()), tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError), outcome
    return str(outcome.error)


class Collecting(lightning.Callback):
    def __init__(self):
        self.found = []

    def on_train_batch_end(self, *given, **options):
        self.found.append(object())


class Averaging(lightning.callbacks.StochasticWeightAveraging):
    pass


class OwnSummary(lightning.callbacks.ModelSummary):
    pass


class OwnCheckpoint(lightning.callbacks.ModelCheckpoint):
    pass


class Saving(lightning.Callback):
    def on_save_checkpoint(self, trainer, module, checkpoint):
        checkpoint["more"] = 1


class Unfreezing(lightning.callbacks.BaseFinetuning):
    def freeze_before_training(self, pl_module):
        pass


WRONG = {
    "finetuning": (
        Unfreezing,
        "Unfreezing, which derives from BaseFinetuning: it adds groups of par",
    ),
    "backbone": (
        lightning.callbacks.BackboneFinetuning,
        "; allowed: all parameters in configure_optimizers, requires_grad_(False) in "
        "on_fit_start, and requires_grad_(True) in on_train_epoch_start, of the module or a callb",
    ),
    "object": (object, "got a object as a callback; allowed: objects of lightning"),
    "averages": (
        lambda: Averaging(0.1),
        "Averaging, which derives from StochasticWeightAveraging: it replaces",
    ),
    "checkpoints": (
        OwnCheckpoint,
        "the callback OwnCheckpoint, which derives from ModelCheckpoint: trainops saves by itself, "
        "and its methods would not be called; allowed: `checkpoint` of the config for when to save",
    ),
    "best": (
        lambda: lightning.callbacks.ModelCheckpoint(monitor="val_loss", mode="max"),
        "ModelCheckpoint monitors val_loss (max), and the config val_loss (min); allowed: the same",
    ),
    "displays": (
        OwnSummary,
        "got the callback OwnSummary: trainops does not follow it; allowed: Ea",
    ),
    "saving": (Saving, "Saving has the method on_save_checkpoint, which trainops does not call"),
    "collecting": (Collecting, "Collecting.found has changed, and is a list, which cannot be"),
}


@pytest.mark.parametrize("name", WRONG)
def test_callbacks_that_cannot_be_followed_are_refused(monkeypatch, tmp_path, name):
    make, says = WRONG[name]
    assert says in refused(monkeypatch, tmp_path, make())
    assert says in refused(monkeypatch, tmp_path / "configured", None, [make()])
