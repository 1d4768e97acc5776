"""One small training in each form; a row of `tests.loop.covering` says how."""

import random
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import default_collate

from tests.loop import pair
from tests.loop.pair_module import Examples, Pair
from tests.ranks import hugging
from tests.ranks.together_loop import disturb
from trainops.kinds.loop.ingredients import ingredients_loop
from trainops.kinds.loop.module import module_loop
from trainops.kinds.loop.settings import IngredientsParameters
from trainops.learning.ingredients import DatasetIngredients

LENGTHS = {"first": 22, "second": 10, "third": 14}  # examples, in batches of 4
OPTIONS = {
    "alternating": {"pattern": ["first", "second", "first", "third"]},
    "weighted": {"weights": {"first": 3.0, "second": 1.0, "third": 2.0}},
}


def train(run, parameters):
    yield from FORMS[parameters.form](run, parameters)


def make_loaders(run, settings):
    names = list(LENGTHS)[: settings.loaders]
    workers = {"num_workers": settings.workers, "persistent_workers": settings.workers > 0}
    made = {
        name: run.loader(name, Examples(LENGTHS[name]), batch_size=4, **workers) for name in names
    }
    if settings.schedule == "none":
        return made["first"]
    options = OPTIONS.get(settings.schedule, {})
    return run.loaders(made, schedule=settings.schedule, name="train", **options)


def batch_of(item):
    """Return the batch, where several loaders yield it with the name of its loader."""
    return item if isinstance(item, dict) else item[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 4)
        )
        self.head = nn.Linear(4, 1)

    def forward(self, inputs):
        return self.head(self.body(inputs))


def make_optimizers(run, model, number):
    if number == 1:
        return [run.keep("optimizer", torch.optim.Adam(model.parameters(), 0.01))]
    head = torch.optim.SGD(model.head.parameters(), 0.01, momentum=0.9)
    return [
        run.keep("optimizer", torch.optim.Adam(model.body.parameters(), 0.01)),
        run.keep("second_optimizer", head),
    ]


def own_loop(run, settings):
    """A loop without a form, whose windows and counts are its own."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(settings.precision)
    model = Net().to(run.device)
    run.keep("model", model)
    net, optimizers = run.wrap(model), make_optimizers(run, model, settings.optimizers)
    scaler = torch.amp.GradScaler(run.device.type, enabled=settings.precision == "fp16")
    run.keep("scaler", scaler)
    counts = run.keep("counts", {"batches": 0, "of_epoch": 0, "loss": 0.0})
    batches = make_loaders(run, settings)
    for _ in run.epochs(settings.epochs):
        for item in batches:
            inputs, target = (batch_of(item)[name].to(run.device) for name in ("inputs", "target"))
            with torch.autocast(run.device.type, dtype, enabled=dtype is not None):
                scores = net(inputs)
            loss = functional.mse_loss(scores.float(), target)
            scaler.scale(loss / settings.accumulation).backward()
            counts["batches"] += 1
            counts["of_epoch"] += 1
            counts["loss"] = loss.item()
            disturb(run.rank, counts["batches"], model.body)
            if counts["of_epoch"] % settings.accumulation and counts["of_epoch"] < len(batches):
                continue
            for each in optimizers:
                scaler.step(each)
                each.zero_grad()
            scaler.update()
            drawn = torch.rand(()).item() + random.random() + np.random.random()
            yield {"train_loss": loss, "drawn": drawn}
        counts["of_epoch"] = 0
        yield {"val_loss": counts["loss"]}


class SeveralLoaders(Pair):
    """The module of `tests.loop.pair` with the loaders of a row."""

    def __init__(self, run, parameters, row):
        super().__init__(run, parameters)
        self.row, self.rank = row, run.rank
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def loaders(self, run):
        held_out = run.loader("validation", Examples(7), batch_size=4, shuffle=False)
        return {"train": make_loaders(run, self.row), "validation": held_out}

    def training_step(self, batch, optimizer="body"):
        if optimizer == "body":
            self.calls += 1
            disturb(self.rank, int(self.calls), self.body)
        return super().training_step(batch_of(batch), optimizer)


def module(run, settings):
    parameters = pair.Parameters(
        epochs=settings.epochs, accumulation=settings.accumulation, precision=settings.precision,
        optimizers=settings.optimizers, num_workers=settings.workers,
    )  # fmt: skip
    make = lambda run, parameters: SeveralLoaders(run, parameters, settings)  # noqa: E731
    yield from module_loop(make)(run, parameters)


def lightning(run, settings):
    from tests.ranks.lit_module import Data, ManyBatches, OneWay, Three, ThreeManyBatches, ThreeOf
    from trainops.kinds.loop.lightning import lightning_loop
    from trainops.kinds.loop.trainer_settings import LightningParameters

    is_manual, windows = settings.optimizers > 1, settings.accumulation
    precision = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}[settings.precision]
    parameters = LightningParameters(
        max_epochs=settings.epochs, precision=precision,
        accumulate_grad_batches=1 if is_manual else windows,
    )  # fmt: skip

    def make(run, parameters):
        if settings.loaders == 1:
            made = ManyBatches(windows) if is_manual else OneWay("step")
            return made, Data(num_workers=settings.workers)
        made = ThreeManyBatches(windows) if is_manual else Three("step")
        return made, ThreeOf(num_workers=settings.workers)

    yield from lightning_loop(make)(run, parameters)


def transformers(run, settings):
    from tests.ranks.hugging_trainer import make_disturbed
    from trainops.kinds.loop.transformers import transformers_loop

    arguments = {
        "gradient_accumulation_steps": settings.accumulation,
        "num_train_epochs": settings.epochs,
        "bf16": settings.precision == "bf16",
        "fp16": settings.precision == "fp16",
        "use_cpu": run.device.type == "cpu",
    }
    parameters = hugging.Parameters(num_workers=settings.workers, arguments=arguments)
    yield from transformers_loop(make_disturbed)(run, parameters)


def ingredients(run, settings):
    parameters = IngredientsParameters(
        epochs=settings.epochs, accumulation=settings.accumulation, precision=settings.precision,
        batch_size=4, num_workers=settings.workers, schedule={"name": "CosineAnnealingLR"},
    )  # fmt: skip
    yield from ingredients_loop(partial(build, run.rank))(run, parameters)


def build(rank, parameters, context):
    del context  # it has the seed and the data
    return DatasetIngredients(
        model=Disturbed(rank), train=Examples(22), validation=Examples(7), collate_fn=in_order,
        loss=functional.mse_loss, loss_factor=4.0, constants={"mean": 0.5},
        measures={"distance": lambda outputs, targets: (outputs - targets).abs()},
    )  # fmt: skip


def in_order(examples):
    batch = default_collate(examples)
    return batch["inputs"], batch["target"]


class Disturbed(Net):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs):
        if self.training:
            self.calls += 1
            disturb(self.rank, int(self.calls), self.body)
        return super().forward(inputs)


FORMS = {
    "loop": own_loop, "module": module, "lightning": lightning, "transformers": transformers,
    "ingredients": ingredients,
}  # fmt: skip
