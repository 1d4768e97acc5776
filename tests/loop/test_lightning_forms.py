"""Further forms of LightningModules that Lightning's own Trainer accepts."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, TensorDataset

from tests.engines.contract import Case, require_stop_changes_nothing, undisturbed

pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
from lightning.pytorch import LightningModule, Trainer

from trainops.kinds.loop.lightning import lightning_loop

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.training_step. returned .None.:UserWarning"),  # Lightning's
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning's CombinedLoader
]
INPUTS = torch.linspace(-1, 1, 24).reshape(12, 2)


class Small(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 1)
        nn.init.constant_(self.net.weight, 0.5)
        nn.init.constant_(self.net.bias, 0.1)
        self.ends = []

    def training_step(self, batch):
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch):
        self.log("val_loss", 1.0 + self.current_epoch)

    def train_dataloader(self):
        return DataLoader(TensorDataset(INPUTS), batch_size=2)

    val_dataloader = train_dataloader

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.1)


class WithMonitor(Small):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        plateau = ReduceLROnPlateau(optimizer, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": plateau, "monitor": "val_loss"}


class MonitorOfOther(Small):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        schedule = {"scheduler": StepLR(optimizer, 1, 0.5)}
        return {"optimizer": optimizer, "lr_scheduler": schedule, "monitor": "val_loss"}


class WithOneScheduler(Small):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return [optimizer], StepLR(optimizer, 1, 0.5)


class WithOneDescribed(Small):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return [optimizer], {"scheduler": StepLR(optimizer, 1, 0.5), "interval": "step"}


class SkipsBatches(Small):
    def training_step(self, batch, batch_idx):
        return None if batch_idx in (0, 3) else super().training_step(batch)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.ends.append((batch_idx, sorted(outputs), self.trainer.global_step))


FORMS = {
    "monitor": (WithMonitor, {}),
    "monitor of another": (MonitorOfOther, {}),
    "one scheduler": (WithOneScheduler, {}),
    "one described scheduler": (WithOneDescribed, {}),
    "skipped batches": (SkipsBatches, {}),
    "skipped within a window": (SkipsBatches, {"accumulate_grad_batches": 2}),
    "skipped and clipped": (SkipsBatches, {"gradient_clip_val": 0.1}),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_trains_as_with_lightnings_trainer(monkeypatch, tmp_path, name):
    make, parameters = FORMS[name]
    parameters = {"max_epochs": 3, **parameters}
    theirs, ours = make(), []
    Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, barebones=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        default_root_dir=tmp_path, **parameters,
    ).fit(theirs)  # fmt: skip
    loop = lightning_loop(lambda *_: ours.append(make()) or ours[-1])
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    config = {"recipe": "lit", "parameters": parameters, "monitor": "train_loss", "threads": 1}
    case = Case("loop", "form", {**config, "device": "cpu"}, ())
    expected = undisturbed(case, tmp_path)
    (own,) = ours
    assert torch.equal(own.net.weight, theirs.net.weight) and own.ends == theirs.ends
    monkeypatch.setattr(
        "trainops.recipes.Recipe.builder", lambda _: lightning_loop(lambda *_: make())
    )
    require_stop_changes_nothing(case, tmp_path / "stops", expected, [2])
