"""LightningModules as people write them, and their DataModule; nothing in them knows trainops."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
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


class Damaged(TensorDataset):
    """The last example cannot be decoded."""

    def __getitem__(self, index):
        if index == len(self) - 1:
            raise ValueError("no PNG signature")
        return super().__getitem__(index)


class DamagedData(Data):
    """What `WithoutDamaged` has, and one more example in each dataset, which cannot be decoded."""

    def setup(self, stage):
        super().setup(stage)
        self.training = Damaged(*self.training.tensors)
        self.held_out = Damaged(*self.held_out.tensors)


class WithoutDamaged(Data):
    def setup(self, stage):
        super().setup(stage)
        self.training = TensorDataset(*(each[:-1] for each in self.training.tensors))
        self.held_out = TensorDataset(*(each[:-1] for each in self.held_out.tensors))


class Flow(IterableDataset):
    """Examples in their order, which nothing can be skipped of."""

    def __init__(self, examples):
        self.examples = examples

    def __iter__(self):
        yield from self.examples


class StatefulFlow(Flow):
    """Has a position, and begins each pass one example further on."""

    def __init__(self, examples):
        super().__init__(examples)
        self.position, self.passes = 0, 0

    def state_dict(self):
        return {"position": self.position, "passes": self.passes}

    def load_state_dict(self, state):
        self.position, self.passes = state["position"], state["passes"]

    def __iter__(self):
        while self.position < len(self.examples):
            self.position += 1
            yield self.examples[(self.position + self.passes) % len(self.examples)]
        self.position, self.passes = 0, self.passes + 1


class AnewFlow(Flow):
    """Continues only from a state that was loaded, else begins a further pass at its beginning."""

    def __init__(self, examples):
        super().__init__(examples)
        self.position, self.passes, self.start = 0, 0, 0

    def state_dict(self):
        return {"position": self.position, "passes": self.passes}

    def load_state_dict(self, state):
        self.start, self.passes = state["position"], state["passes"]

    def __iter__(self):
        self.position, self.start = self.start, 0
        self.passes += not self.position
        while self.position < len(self.examples):
            self.position += 1
            yield self.examples[(self.position + self.passes) % len(self.examples)]
        self.position = 0


class FlowingData(Data):
    """With `StatefulFlow`, the last batch is a full one."""

    flow = Flow

    def loader(self, dataset):
        examples = list(dataset)
        if self.flow is StatefulFlow:
            examples = examples[: len(examples) // 4 * 4]
        return super().loader(self.flow(examples))


class Automatic(LightningModule):
    """Dropout, a metric with a state, outputs collected in a list, a layer that is unfrozen."""

    monitored = "val_loss"

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
            case "seldom":
                schedule = schedulers.StepLR(optimizer, 1, 0.5)
                return [optimizer], [{"scheduler": schedule, "interval": "step", "frequency": 2}]
            case "epoch":
                return [optimizer], [schedulers.StepLR(optimizer, 1, 0.5)]
            case "plateau":
                schedule = schedulers.ReduceLROnPlateau(optimizer, patience=0)
                described = {"scheduler": schedule, "monitor": self.monitored}
                return {"optimizer": optimizer, "lr_scheduler": described}
        return optimizer


class CombinedData(Data):
    """Loaders of 6, 3 and 2 batches that are trained together, and two that are validated so."""

    mode = ""

    def train_dataloader(self):
        parts = [TensorDataset(*(each[:n] for each in self.training.tensors)) for n in (23, 9, 6)]
        large, middle, small = map(self.loader, parts)
        together = [{"large": large, "middle": middle}, small]
        return together if self.mode == "list" else CombinedLoader(together, self.mode)

    def val_dataloader(self):
        far = TensorDataset(*(each[:12] for each in self.training.tensors))
        together = {"near": super().val_dataloader(), "far": self.loader(far)}
        mode = "max_size_cycle" if self.mode == "list" else self.mode
        return CombinedLoader(together, mode)


class Combined(LightningModule):
    """A semi-supervised module: what it does with a batch depends on where that stands."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.2), nn.Linear(8, 1))

    def losses(self, batch):
        if isinstance(batch, list):
            parts = [batch[0]["large"], batch[0]["middle"], batch[1]]
        else:
            parts = [batch["near"], batch["far"]]
        return [
            functional.mse_loss(self.net(part[0]), part[1]) * weight
            for weight, part in enumerate(parts, start=1)
            if part is not None
        ]

    def training_step(self, batch, batch_idx):
        loss = sum(self.losses(batch)) + 0.001 * batch_idx
        self.log("train_error", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("val_loss", sum(self.losses(batch)))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=total + 1)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class SeveralData(Data):
    """Two loaders of validation, of different lengths."""

    def val_dataloader(self):
        far = TensorDataset(*(each[:9] for each in self.training.tensors))
        return {"near": super().val_dataloader(), "far": self.loader(far)}


class Several(Automatic):
    """Logs by loader, with a metric for both, and moves batches of the second."""

    monitored = "val_loss/dataloader_idx_1"

    def __init__(self, scheduler="none"):
        super().__init__(scheduler)
        self.both = MeanSquaredError()

    def on_after_batch_transfer(self, batch, dataloader_idx):
        inputs, targets = batch
        return inputs + 0.1 * dataloader_idx, targets

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        super().validation_step(batch, batch_idx)
        inputs, targets = batch
        scores = self(inputs).float()
        self.both(scores, targets)
        self.log("val_both", self.both)
        error = functional.l1_loss(scores, targets)
        self.log(f"val_error_{dataloader_idx}", error, add_dataloader_idx=False)
        self.log("val_batch", error * batch_idx, on_step=True, on_epoch=True)

    def on_validation_batch_end(self, outputs, batch, batch_idx, dataloader_idx=0):
        self.batches_seen += 0.5 * dataloader_idx * batch_idx


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
    is_manual, is_several = (parameters.module == each for each in ("manual", "several"))
    module = Manual() if is_manual else (Several if is_several else Automatic)(parameters.scheduler)
    data = (SeveralData if is_several else Data)(num_workers=parameters.num_workers)
    if parameters.combined:
        module, data = Combined(), CombinedData()
        data.mode = parameters.combined
    if parameters.damaged:
        data = (DamagedData if parameters.skip_undecodable else WithoutDamaged)()
    if parameters.iterable:
        data = FlowingData()
        data.flow = {"plain": Flow, "stateful": StatefulFlow, "anew": AnewFlow}[parameters.iterable]
    if not parameters.callbacks:
        return module, data
    from tests.loop.lit_callbacks import MADE

    return module, data, [MADE[name]() for name in parameters.callbacks]


def train(run, parameters):
    from trainops.kinds.loop.lightning import lightning_loop

    yield from lightning_loop(make)(run, parameters)
