"""The modules of `tests.ranks.lit`. The variable FAULT of the environment disturbs them.

"stop 0 5": at the fifth batch of training; "stop 0 -2": at the second batch of a validation.
"""

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.utils.data import TensorDataset
from torchmetrics import MeanSquaredError, PearsonCorrCoef, SumMetric
from torchmetrics.classification import BinaryAUROC

from tests.loop.lit_module import (
    Automatic,
    DamagedData,
    Data,
    Flow,
    FlowingData,
    Manual,
    Windows,
    WithoutDamaged,
)
from tests.ranks.together_loop import disturb
from trainops.kinds.loop.lightning import lightning_loop


class Disturbed:
    """Counts batches, logs over all ranks, and is disturbed."""

    fault = ""

    def setup(self, stage):
        self.register_buffer("trained", torch.zeros((), dtype=torch.int64))
        self.register_buffer("validated", torch.zeros((), dtype=torch.int64))
        if self.fault == "sync_norm":
            self.norm = nn.SyncBatchNorm(2)
        if self.fault == "frozen":
            self.net[4].requires_grad_(False)

    def on_train_batch_start(self, batch, batch_idx):
        if self.fault == "frozen":
            self.net[4].requires_grad_(True)

    def training_step(self, batch, batch_idx):
        self.trained += 1
        disturb(self.global_rank, int(self.trained), self)
        loss = super().training_step(batch, batch_idx)
        self.log("rank", float(self.global_rank), on_step=True, on_epoch=True, sync_dist=True)
        if self.fault == "stops":
            self.stop()
        return loss

    def stop(self):
        data = self.trainer.datamodule
        self.log("prepared", float(data.is_prepared), on_step=False, on_epoch=True)
        self.log("drawn", data.drawn, on_step=False, on_epoch=True)
        self.log("drawn_first", data.drawn, on_step=False, on_epoch=True, rank_zero_only=True)
        if self.global_rank == 1 and int(self.trained) == 2:
            self.trainer.should_stop = True

    def validation_step(self, batch, batch_idx):
        self.validated += 1
        disturb(self.global_rank, -int(self.validated), self)
        super().validation_step(batch, batch_idx)
        self.log("val_place", batch[0].mean(), sync_dist=True)

    def log_dict(self, values):
        for name, value in values.items():
            self.log(name, value, sync_dist=True)


class ManyWays(Disturbed, Manual):
    def forward(self, inputs):
        return self.head(self.body(inputs))

    def validation_step(self, batch, batch_idx):
        self.validated += 1
        disturb(self.global_rank, -int(self.validated), self)
        Manual.validation_step(self, batch)


class ManyBatches(Disturbed, Windows):
    def training_step(self, batch, batch_idx):
        if self.fault != "plain_backward":
            return super().training_step(batch, batch_idx)
        self.body(batch[0]).sum().backward()
        self.optimizers()[0].step()
        return None

    forward, validation_step = ManyWays.forward, ManyWays.validation_step

    def on_train_epoch_end(self):
        self.lr_schedulers().step()


class OneWay(Disturbed, Automatic):
    pass


class Divisible(OneWay):
    """Freezes nothing."""

    def on_train_epoch_start(self):
        pass


class Keeping(Divisible):
    """Keeps what only all ranks together can read."""

    def setup(self, stage):
        super().setup(stage)
        self.norms = []

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.norms.append(self.net[0].weight.norm())


class Freezing(OneWay):
    """Freezes a layer after it was divided."""

    def on_train_epoch_start(self):
        self.net[4].requires_grad_(False)


class Measured(OneWay):
    """Measures its validations; a metric is logged by other ranks than the first only."""

    def __init__(self):
        super().__init__()
        self.seen, self.squares, self.others = SumMetric(), MeanSquaredError(), SumMetric()

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        inputs, targets = batch
        scores = self(inputs)
        self.seen(len(inputs))
        self.squares(scores, targets)
        self.log("val_seen", self.seen)
        self.log("val_squares", self.squares)
        if self.global_rank:
            self.others(len(inputs))
            self.log("val_others", self.others)


class Listing(OneWay):
    """Has a metric with lists."""

    def __init__(self):
        super().__init__()
        self.area = BinaryAUROC()

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        inputs, targets = batch
        self.area(self(inputs), targets > targets.mean())
        self.log("val_area", self.area)


class Correlated(Listing):
    """Has a metric whose states of several ranks cannot be merged, too."""

    def __init__(self):
        super().__init__()
        self.correlation = PearsonCorrCoef()

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        inputs, targets = batch
        self.correlation(self(inputs)[:, 0], targets[:, 0])
        self.log("val_correlation", self.correlation)


class Gathering(OneWay):
    """The loss has a part of all ranks, through which gradients flow."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        means = self.all_gather({"score": self(batch[0]).mean()}, sync_grads=True)["score"]
        held = self.all_gather(means.sum())
        assert means.shape == held.shape == (self.trainer.world_size,) and not held.requires_grad
        self.trainer.strategy.barrier()
        return loss + means.square().mean() + self.trainer.strategy.broadcast(batch_idx) * 0.1


class Closure(OneWay):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.05, max_iter=3)


class TwoLoaders(Data):
    """Two loaders of training, taken together, and two of validation."""

    def far(self):
        return self.loader(TensorDataset(*(each[13:] for each in self.training.tensors)))

    def train_dataloader(self):
        return [super().train_dataloader(), self.far()]

    def val_dataloader(self):
        return [super().val_dataloader(), self.far()]


class Two(OneWay):
    def training_step(self, batch, batch_idx):
        near, (inputs, targets) = batch
        loss = super().training_step(near, batch_idx)
        return loss + 0.5 * functional.mse_loss(self(inputs), targets)

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        if not dataloader_idx:
            super().validation_step(batch, batch_idx)
            return
        inputs, targets = batch
        self.log_dict({"val_far": functional.mse_loss(self(inputs), targets)})

    def log_dict(self, values):
        for name, value in values.items():
            self.log(name, value, sync_dist=True, add_dataloader_idx=False)


class ThreeOf(Data):
    """Three loaders of training, of different lengths, taken together; shorter ones begin anew."""

    def train_dataloader(self):
        parts = [TensorDataset(*(each[:n] for each in self.training.tensors)) for n in (23, 9, 13)]
        return [self.loader(each) for each in parts]


class OfThree:
    """Trains with the batches of three loaders at once."""

    def training_step(self, batch, batch_idx):
        inputs, targets = (torch.cat(each) for each in zip(*batch, strict=True))
        return super().training_step((inputs, targets), batch_idx)


class Three(OfThree, OneWay):
    pass


class ThreeManyBatches(OfThree, ManyBatches):
    pass


class ShardedData(Data):
    """Each rank has a dataset of its own batches, as Lightning's Trainer expects it."""

    def loader(self, dataset):
        batches = torch.arange(len(dataset)).split(self.hparams.batch_size)
        own = torch.cat(batches[distributed.get_rank() :: distributed.get_world_size()])
        return super().loader(Flow([dataset[index] for index in own]))


class Prepared(Data):
    """Is prepared in rank 0 only, where it draws random numbers as `setup` does in all."""

    is_prepared, drawn = False, 0.0

    def prepare_data(self):
        torch.rand(5)
        self.is_prepared = True

    def setup(self, stage):
        super().setup(stage)
        self.drawn = float(torch.rand(()))


def make(run, parameters):
    made = {
        "automatic": lambda: OneWay(parameters.scheduler),
        "closure": Closure,
        "divisible": lambda: Divisible(parameters.scheduler),
        "freezing": Freezing,
        "gathering": Gathering,
        "keeping": Keeping,
        "manual": ManyWays,
        "measured": Measured,
        "listing": Listing,
        "correlated": Correlated,
        "windows": lambda: ManyBatches(2),
        "two": lambda: Two(parameters.scheduler),
    }
    module = made[parameters.module]()
    module.fault = parameters.fault
    data = Prepared if parameters.fault == "stops" else Data
    if parameters.module == "two":
        data = TwoLoaders
    if parameters.damaged:
        data = DamagedData if parameters.skip_undecodable else WithoutDamaged
    if parameters.iterable:
        data = FlowingData if parameters.iterable == "plain" else ShardedData
    return module, data(parameters.batch_size)


def train(run, parameters):
    yield from lightning_loop(make, shards_itself=parameters.iterable == "sharded")(run, parameters)
