"""LightningModules as people write them, and their DataModule; nothing in them knows trainops."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanSquaredError


class Data(LightningDataModule):
    def __init__(self, batch_size=4, num_workers=0):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        inputs = torch.linspace(-1, 1, 46).reshape(23, 2)
        self.training = TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())
        self.held_out = TensorDataset(inputs[:7] / 2, inputs[:7].sum(1, keepdim=True).cos())

    def loader(self, dataset):
        return DataLoader(dataset, generator=torch.Generator(), **self.hparams)

    def train_dataloader(self):
        return self.loader(self.training)

    def val_dataloader(self):
        return self.loader(self.held_out)


class Automatic(LightningModule):
    """Dropout, a metric with a state, outputs collected in a list, a layer that is unfrozen."""

    def __init__(self, scheduler="none"):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1)
        )
        self.error = MeanSquaredError()
        self.outputs = []
        self.batches_seen = 0

    def forward(self, inputs):
        return self.net(inputs)

    def on_train_epoch_start(self):
        self.net[0].requires_grad_(self.current_epoch > 0)

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        scores = self(inputs).float()
        loss = functional.mse_loss(scores, targets)
        self.batches_seen += 1
        self.error(scores.detach(), targets)
        self.log("train_error", self.error, on_epoch=True)
        self.log("train_root", loss.sqrt(), on_step=True, on_epoch=True, prog_bar=True)
        return loss * (1 + 0.01 * self.batches_seen)

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = functional.mse_loss(self(inputs).float(), targets)
        self.outputs.append(loss)
        self.log_dict({"val_loss": loss, "val_steps": self.global_step})

    def on_validation_epoch_end(self):
        worst = torch.stack(self.outputs).max()
        self.outputs.clear()
        self.log("val_worst", worst)
        if self.current_epoch > 1 and worst > 100:
            self.trainer.should_stop = True

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        schedulers = torch.optim.lr_scheduler
        match self.hparams.scheduler:
            case "step":
                total = self.trainer.estimated_stepping_batches
                schedule = schedulers.OneCycleLR(optimizer, 0.1, total_steps=total + 1)
                return [optimizer], [{"scheduler": schedule, "interval": "step"}]
            case "epoch":
                return [optimizer], [schedulers.StepLR(optimizer, 1, 0.5)]
            case "plateau":
                schedule = schedulers.ReduceLROnPlateau(optimizer, patience=0)
                described = {"scheduler": schedule, "monitor": "val_loss"}
                return {"optimizer": optimizer, "lr_scheduler": described}
        return optimizer


class Manual(LightningModule):
    """Two optimizers in alternation, the second after two batches; gradients are held between."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.body, self.head = nn.Linear(2, 4), nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        body, head = self.optimizers()
        self.toggle_optimizer(body)
        body.zero_grad()
        loss = functional.mse_loss(self.head(self.body(inputs)), targets)
        self.manual_backward(loss)
        self.clip_gradients(body, gradient_clip_val=0.1, gradient_clip_algorithm="norm")
        body.step()
        self.untoggle_optimizer(body)
        other = functional.l1_loss(self.head(self.body(inputs).detach()), targets)
        self.manual_backward(other)
        if batch_idx % 2:
            head.step()
            head.zero_grad()
        self.log("body_loss", loss)

    def on_train_epoch_end(self):
        self.lr_schedulers().step()

    def validation_step(self, batch):
        inputs, targets = batch
        self.log("val_loss", functional.mse_loss(self.head(self.body(inputs)), targets))

    def configure_optimizers(self):
        body = torch.optim.Adam(self.body.parameters(), lr=0.05)
        head = torch.optim.SGD(self.head.parameters(), lr=0.05, momentum=0.9)
        return [body, head], [torch.optim.lr_scheduler.StepLR(body, 1, 0.5)]


class Windows(Manual):
    """Two optimizers that step after a number of batches; what remains is held."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = functional.mse_loss(self.head(self.body(inputs)).float(), targets)
        self.manual_backward(loss / self.batches)
        if (batch_idx + 1) % self.batches == 0:
            for each in self.optimizers():
                each.step()
                each.zero_grad()
        self.log("train_error", loss)


def make(run, parameters):
    module = Manual() if parameters.module == "manual" else Automatic(parameters.scheduler)
    return module, Data(num_workers=parameters.num_workers)


def train(run, parameters):
    from trainops.kinds.loop.lightning import lightning_loop

    yield from lightning_loop(make)(run, parameters)
