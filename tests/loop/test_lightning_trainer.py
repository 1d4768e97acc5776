"""Attributes of the trainer have the values of Lightning's own, or an error says what to use."""

import warnings
from operator import attrgetter

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.engines.contract import Case, ScriptedSupervisor, attempt
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Succeeded

pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
from lightning.pytorch import LightningModule, Trainer

from trainops.kinds.loop.lightning import lightning_loop
from trainops.kinds.loop.lightning.loaders import shown

DATA = TensorDataset(torch.linspace(-1, 1, 12).reshape(6, 2))
SETTINGS = {"max_epochs": 2, "accumulate_grad_batches": 2}
SAME = (
    "train_dataloader", "val_dataloaders", "test_dataloaders", "predict_dataloaders",
    "num_training_batches", "num_val_batches", "estimated_stepping_batches", "max_epochs",
    "max_steps", "min_epochs", "min_steps", "is_global_zero", "current_epoch", "global_step",
    "datamodule", "accumulate_grad_batches", "gradient_clip_val",
    "precision", "world_size", "num_devices", "num_nodes", "node_rank", "local_rank",
    "global_rank", "sanity_checking", "training", "validating", "evaluating", "testing",
    "predicting", "log_every_n_steps", "progress_bar_metrics", "limit_train_batches",
    "limit_val_batches", "check_val_every_n_epoch", "val_check_interval", "enable_validation",
    "overfit_batches", "num_sanity_val_steps", "reload_dataloaders_every_n_epochs", "interrupted",
    "received_sigterm", "ckpt_path", "fast_dev_run", "should_stop", "is_last_batch",
)  # fmt: skip
HOOKS = (
    "on_train_start", "on_train_epoch_start", "on_train_batch_end",
    "on_validation_epoch_start", "on_validation_epoch_end", "on_train_epoch_end",
)  # fmt: skip


INSTEAD = {
    "default_root_dir": "self.logger.experiment or trainops.log: a run has no directory",
    "log_dir": "self.logger.experiment or trainops.log",
    "save_checkpoint": "nothing: trainops saves by itself",
    "train_dataloaders": "trainer.train_dataloader",
    "fit_loop.batch_progress": "a hook, since trainops drives the loop",
    "fit_loop.epoch_loop.batch_idx": "a hook, since trainops drives the loop",
    "strategy.model": "all_gather, barrier, broadcast, global_rank",
}


class Noting(LightningModule):
    """Writes down attributes of the trainer in hooks."""

    def __init__(self):
        super().__init__()
        self.net, self.found = nn.Linear(2, 1), []
        self.train_loader, self.held_out = (DataLoader(DATA, batch_size=2) for _ in range(2))

    def training_step(self, batch):
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss, prog_bar=True, on_step=True, on_epoch=True)
        self.log("hidden", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.net(batch[0]).square().mean(), prog_bar=True)

    def note(self, hook):
        trainer = self.trainer
        values = {name: getattr(trainer, name) for name in SAME}
        values["progress_bar_metrics"] = dict(values["progress_bar_metrics"])
        values["stage"] = trainer.state.stage
        if hook in ("on_train_start", "on_train_epoch_start"):  # of the epoch before in Lightning
            values.pop("is_last_batch")
        self.found.append((hook, values))

    def configure_optimizers(self):
        self.trainer.fit_loop.setup_data()
        assert len(self.trainer.train_dataloader) == 3
        return torch.optim.SGD(self.parameters(), 0.1)

    def train_dataloader(self):
        return self.train_loader

    def val_dataloader(self):
        return [self.held_out]


for name in HOOKS:
    setattr(Noting, name, lambda self, *_, _name=name: self.note(_name))


def noted(value, module):
    """Return what is equal in two modules."""
    places = {id(module.train_loader): "train", id(module.held_out): "held out"}
    if isinstance(value, list):
        return [noted(each, module) for each in value]
    if isinstance(value, dict):
        return {name: round(each, 5) for name, each in value.items()}
    return places.get(id(value), value)


def test_attributes_have_the_values_of_lightnings_trainer(monkeypatch, tmp_path):
    torch.manual_seed(0)
    own, theirs = Noting(), Noting()
    theirs.load_state_dict(own.state_dict())
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: lightning_loop(lambda *_: own))
    config = {"recipe": "lit", "parameters": SETTINGS, "log_every_steps": 3, "threads": 1}
    case = Case("loop", "noting", config | {"device": "cpu"}, ())
    outcome = attempt(case, tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Succeeded), outcome
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Trainer(
            accelerator="cpu", logger=False, enable_checkpointing=False, num_sanity_val_steps=0,
            enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=3, **SETTINGS,
        ).fit(theirs)  # fmt: skip
    assert [hook for hook, _ in own.found] == [hook for hook, _ in theirs.found]
    for (hook, mine), (_, other) in zip(own.found, theirs.found, strict=True):
        if hook == "on_validation_epoch_end":  # trainops shows what is logged so far
            mine.pop("progress_bar_metrics"), other.pop("progress_bar_metrics")
        pairs = {key: (noted(mine[key], own), noted(other[key], theirs)) for key in mine}
        differing = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
        assert not differing, hook


class Asking(Noting):
    """Asks for what is not provided."""

    def note(self, hook):
        for place, use in INSTEAD.items():
            with pytest.raises(AttributeError) as caught:
                attrgetter(place)(self.trainer)
            problem = f"the module or a callback uses trainer.{place}, which trainops does not"
            assert str(caught.value).startswith(f"{problem} provide; allowed: {use}")
        self.found.append(hook)


def test_an_attribute_that_is_not_provided_says_what_to_use_instead(monkeypatch, tmp_path):
    module = Asking()
    loop = lightning_loop(lambda *_: module)
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    case = Case("loop", "asking", {"recipe": "lit", "parameters": {"max_epochs": 1}}, ())
    outcome = attempt(case, tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Succeeded), outcome
    assert set(module.found) == set(HOOKS)


def test_loaders_of_several_ranks_have_no_length():
    batches, other = DataLoader(DATA, batch_size=2), DataLoader(DATA)
    for each in (shown(batches, 2), shown([{"a": batches}, other], 2)[0]["a"]):
        assert each and each.dataset is DATA and each.batch_size == 2
        for function in (len, iter):
            with pytest.raises(InputError, match="several processes; allowed: tr"):
                function(each)
    assert shown(None, 2) is None and shown([batches, other], 1) == [batches, other]
