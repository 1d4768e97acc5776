"""The recipes of `benchmarks.trainers`: one small network in each form, and its parts."""

import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import Trainer, TrainingArguments

from trainops.kinds.loop.lightning import lightning_loop
from trainops.kinds.loop.module import TrainingModule, module_loop
from trainops.kinds.loop.transformers import transformers_loop
from trainops.recipes import Recipe

BATCH, NUM_EXAMPLES, WIDTH = 32, 32 * 200, 256
NUM_SLOW, SLOW_SECONDS = 400, 1e-3  # batches of one example

warnings.filterwarnings("ignore")


class Rows(Dataset[tuple[torch.Tensor, ...]]):
    """Examples of a dataset of one's own, which are taken one by one."""

    seconds = 0.0

    def __init__(self, *tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, index):
        if self.seconds:
            time.sleep(self.seconds)
        return tuple(each[index] for each in self.tensors)


class SlowRows(Rows):
    seconds = SLOW_SECONDS


KIND: Callable[..., Any] = TensorDataset  # of dataset
OPTIONS = {}  # of its loaders: those of run.loader and DataLoader alike


def dataset(kind=None, num_examples=NUM_EXAMPLES):
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(num_examples, 64, generator=random)
    return (kind or KIND)(inputs, (inputs.sum(1) > 0).long())


def network():
    return nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                         nn.Linear(WIDTH, 2))  # fmt: skip


def loop(run, parameters):
    yield from _steps(run, parameters, run.loader("train", dataset(), batch_size=BATCH, **OPTIONS))


def slow(run, parameters):
    batches = run.loader("train", dataset(SlowRows, NUM_SLOW), batch_size=1)
    yield from _steps(run, parameters, batches)


def _steps(run, parameters, batches):
    model = run.keep("model", network())
    optimizer = run.keep("optimizer", torch.optim.AdamW(model.parameters()))
    for _ in run.epochs(parameters.epochs):
        for inputs, targets in batches:
            loss = functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield {"train_loss": loss}


class Module(TrainingModule):
    def __init__(self, run, parameters):
        super().__init__()
        self.net = network()

    def loaders(self, run):
        return {"train": run.loader("train", dataset(), batch_size=BATCH)}

    def optimizers(self):
        return torch.optim.AdamW(self.net.parameters())

    def training_step(self, batch):
        return functional.cross_entropy(self.net(batch[0]), batch[1])


class Lit(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = network()

    def training_step(self, batch, batch_idx):
        return functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def train_dataloader(self):
        return DataLoader(dataset(), batch_size=BATCH, shuffle=True)


class Named(nn.Module):
    """The network as Trainer calls it: with names, and the loss in its outputs."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, inputs, labels):
        scores = self.net(inputs)
        return {"loss": functional.cross_entropy(scores, labels), "logits": scores}


def as_named(examples):
    inputs, labels = zip(*examples, strict=True)
    return {"inputs": torch.stack(inputs), "labels": torch.stack(labels)}


def hugging(epochs):
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), num_train_epochs=epochs, save_strategy="no",
        per_device_train_batch_size=BATCH, report_to="none", use_cpu=True, disable_tqdm=True,
        logging_strategy="no", lr_scheduler_type="constant", dataloader_pin_memory=False,
    )  # fmt: skip
    return Trainer(model=Named(), args=arguments, train_dataset=dataset(), data_collator=as_named)


def _hugging(run, parameters):
    return hugging(parameters.epochs)


train_module = module_loop(Module)
train_lightning = lightning_loop(lambda run, parameters: Lit())
train_transformers = transformers_loop(_hugging)


def _recipe(name, parameters="trainops.kinds.loop.settings:ModuleParameters"):
    build = name if name in ("loop", "slow") else f"train_{name}"
    return Recipe(
        name=f"bench_{name}",
        kind="loop",
        label=name,
        description="For benchmarks",
        parameters=parameters,
        build=f"benchmarks.trainer_recipes:{build}",
        example={"recipe": f"bench_{name}"},
    )


LOOP, MODULE, TRANSFORMERS = _recipe("loop"), _recipe("module"), _recipe("transformers")
SLOW = _recipe("slow")
LIGHTNING = _recipe("lightning", "trainops.kinds.loop.trainer_settings:LightningParameters")
