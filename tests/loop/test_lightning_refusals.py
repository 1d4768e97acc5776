"""What the driver of LightningModules does not do is refused by name."""

import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)

from tests.engines.contract import Case, ScriptedSupervisor, attempt
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Failed, Succeeded

pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.combined_loader import CombinedLoader

from trainops.kinds.loop.lightning import lightning_loop

pytestmark = pytest.mark.slow
DATA = TensorDataset(torch.ones(6, 2))


class Stream(IterableDataset):
    def __iter__(self):
        yield from DATA


class Small(LightningModule):
    returned = None
    loader_options = {}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 1)

    def training_step(self, batch):
        return self.net(batch[0]).mean()

    def train_dataloader(self):
        return DataLoader(DATA, batch_size=4, **self.loader_options)

    def configure_optimizers(self):
        return self.returned or torch.optim.SGD(self.parameters(), 0.1)


class Manual(Small):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class NoStep(LightningModule):
    def configure_optimizers(self):
        return None


class NoLoader(Small):
    train_dataloader = LightningModule.train_dataloader


class NoOptimizer(Small):
    def configure_optimizers(self):
        return None


class TwoOptimizers(Small):
    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), 0.1) for _ in range(2)]


class WrongScheduler(Small):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": 3}}


class WrongInterval(Small):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        return [optimizer], [{"scheduler": schedule, "interval": "batch"}]


class NoMonitor(Small):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)]


class Divided(Small):
    def train_dataloader(self):
        return DataLoader(DATA, sampler=DistributedSampler(DATA, num_replicas=2, rank=0))


class Sampled(Small):
    def train_dataloader(self):
        return [DataLoader(DATA), DataLoader(DATA, sampler=SubsetRandomSampler(range(3)))]


class WithoutBatches(Small):
    def train_dataloader(self):
        return DataLoader(DATA, batch_size=None)


class NoneOfThem(Small):
    def train_dataloader(self):
        return {}


class WithStream(Small):
    def train_dataloader(self):
        return [DataLoader(DATA), DataLoader(Stream())]


class Validated(Small):
    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("val_loss", self.net(batch[0]).mean(), add_dataloader_idx=False)

    def val_dataloader(self):
        return [DataLoader(DATA), DataLoader(DATA)]


class WithoutIndex(Validated):
    def on_validation_batch_end(self, outputs, batch, batch_idx):
        pass


class OneAfterTheOther(Small):
    def train_dataloader(self):
        return CombinedLoader([DataLoader(DATA), DataLoader(DATA)], "sequential")


class NoLoaderOfTorch(Validated):
    def val_dataloader(self):
        return {"near": DataLoader(DATA), "far": [DATA, 3]}


class Skips(Small):
    def on_train_batch_start(self, batch, batch_idx):
        return -1


class AsksTrainer(Small):
    def on_train_start(self):
        assert self.trainer.checkpoint_callback is None and not self.trainer.checkpoint_callbacks
        assert self.trainer.early_stopping_callback is None
        self.trainer.of_no_trainer("file")


class LogsSum(Small):
    def training_step(self, batch):
        self.log("sum", 1.0, reduce_fx="sum")
        return super().training_step(batch)


WRONG = {
    nn.Linear: "got a Linear; allowed: a lightning.pytorch.LightningModule",
    NoStep: "NoStep has no method training_step",
    NoLoader: "no method train_dataloader",
    NoOptimizer: "configure_optimizers returned a NoneType",
    TwoOptimizers: "returned 2 optimizers; allowed: one, or several with automatic_optimization",
    WrongScheduler: "got a int as a scheduler",
    WrongInterval: "got the interval 'batch' of StepLR; allowed: step, epoch",
    NoMonitor: "ReduceLROnPlateau has no monitor",
    Divided: "the DistributedSampler of the loader 'train' divides the examples over 2 processes",
    Sampled: "'train' combines loaders of which one has a sampler of its own; allowed: map-style",
    WithoutBatches: "the loader 'train' has batch_size=None; allowed: a batch size, or a batch",
    NoneOfThem: "'train' combines no loaders",
    WithStream: "'train' combines loaders of which one has an iterable dataset; allowed: map-",
    Validated: "self.log('val_loss', add_dataloader_idx=False) is used with two loaders; allowed:",
    WithoutIndex: "2 loaders, but on_validation_batch_end of WithoutIndex has no parameter data",
    OneAfterTheOther: "train_dataloader returned a CombinedLoader with mode='sequential'; all",
    NoLoaderOfTorch: "got a TensorDataset as the loader 'validation_1'; allowed: DataLoaders",
    Skips: "on_train_batch_start returned -1",
    LogsSum: "self.log('sum') has the reduce_fx 'sum'; allowed: mean, and MaxMetric, M",
}


@pytest.fixture
def fail(monkeypatch, tmp_path):
    """Train a module; return its error."""

    def run(module, **parameters):
        made = lightning_loop(lambda *_: nn.Linear(1, 1) if module is nn.Linear else module())
        monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: made)
        case = Case("loop", "small", {"recipe": "lit", "parameters": parameters}, ())
        outcome = attempt(case, tmp_path, ScriptedSupervisor())
        assert isinstance(outcome, Failed), outcome
        return outcome.error

    return run


@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")  # of Lightning's CombinedLoader
@pytest.mark.parametrize("module", WRONG)
def test_a_wrong_lightning_module_is_refused_by_name(fail, module):
    error = fail(module)
    assert isinstance(error, InputError) and WRONG[module] in str(error)


@pytest.mark.parametrize(
    ("field", "value"), [("accumulate_grad_batches", 2), ("gradient_clip_val", 1.0)]
)
def test_settings_of_automatic_optimization_are_refused_with_manual(fail, field, value):
    assert f"parameters.{field}: got {value} with manual" in str(fail(Manual, **{field: value}))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU can train with fp16")
def test_16_mixed_is_refused_on_a_cpu(fail):
    assert "got 16-mixed on cpu" in str(fail(Small, precision="16-mixed"))


def test_an_attribute_that_the_trainer_does_not_have_is_named(fail):
    error = fail(AsksTrainer)
    assert isinstance(error, AttributeError)
    assert "uses trainer.of_no_trainer, which trainops does not provide" in str(error)
    names = str(error).partition("allowed: ")[2].split(", ")
    assert {"current_epoch", "early_stopping_callback"} < set(names)
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    assert [each for each in names if not hasattr(trainer, each)] == []
    assert "barebones" not in names


class Gathers(Small):
    def training_step(self, batch):
        loss = super().training_step(batch)
        gathered = self.all_gather(loss, sync_grads=True)
        assert gathered is loss and self.trainer.strategy.broadcast(3) == 3
        self.trainer.strategy.barrier()
        return gathered


def test_one_process_gathers_its_own_tensors(monkeypatch, tmp_path):
    loop = lightning_loop(lambda *_: Gathers())
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    case = Case("loop", "small", {"recipe": "lit", "parameters": {"max_epochs": 1}}, ())
    outcome = attempt(case, tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Succeeded), outcome
