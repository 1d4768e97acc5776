"""What a training module cannot do is refused before its first step, with the field's name."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from tests.engines.contract import Case, ScriptedSupervisor, attempt
from tests.loop.datasets import Stream
from tests.loop.pair import Parameters
from trainops.kind import KINDS
from trainops.kinds.loop import settings
from trainops.kinds.loop.module import (
    Schedule,
    TrainingModule,
    make_optimizer,
    make_schedule,
    module_loop,
)
from trainops.kinds.loop.settings import ScheduleSettings
from trainops.runtime.errors import ConfigError, InputError
from trainops.runtime.loop import Failed

DATA = TensorDataset(torch.ones(6, 2))


class Small(TrainingModule):
    def __init__(self, run, parameters):
        super().__init__()
        self.net = nn.Linear(2, 1)

    def loaders(self, run):
        names = ("train", "validation")
        return {name: run.loader(name, DATA, batch_size=4) for name in names}

    def optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def training_step(self, batch):
        return self.net(batch[0]).mean()

    def validation_step(self, batch):
        return self.net(batch[0]).mean()


class NoStep(Small):
    training_step = None


class NoLoaders(Small):
    loaders = TrainingModule.loaders


class NoOptimizers(Small):
    optimizers = TrainingModule.optimizers


class NoValidationStep(Small):
    validation_step = None


class OtherLoader(Small):
    def loaders(self, run):
        return {"test": run.loader("test", DATA)}


class PlainLoader(Small):
    def loaders(self, run):
        return {"train": DataLoader(DATA)}


class OnlyTraining(Small):
    def loaders(self, run):
        return {"train": run.loader("train", DATA)}


class Streamed(Small):
    def loaders(self, run):
        return {"train": run.loader("train", Stream(), batch_size=4)}

    def schedulers(self, optimizers, extent):
        return make_schedule(ScheduleSettings(name="LinearLR"), optimizers["optimizer"], extent)


class NoOptimizer(Small):
    def optimizers(self):
        return {}


class Sharing(Small):
    def optimizers(self):
        return {name: torch.optim.SGD(self.parameters(), 0.1) for name in ("one", "other")}


class PlainSchedule(Small):
    def schedulers(self, optimizers, extent):
        return [lr_scheduler.StepLR(optimizers["optimizer"], 1)]


class PlateauByEpoch(Small):
    def schedulers(self, optimizers, extent):
        return [Schedule(lr_scheduler.ReduceLROnPlateau(optimizers["optimizer"]), "epoch")]


class ForeignSchedule(Small):
    def schedulers(self, optimizers, extent):
        return [Schedule(lr_scheduler.StepLR(torch.optim.SGD(self.parameters(), 1.0), 1))]


class UnknownTurn(Small):
    def turns(self, step, optimizers):
        return ["critic"]


class FrozenTypo(Small):
    def frozen(self, epoch):
        return ["net.weihgt"]


class FrozenText(Small):
    def frozen(self, epoch):
        return "net"


class FrozenPart(Small):
    def frozen(self, epoch):
        return ["ne"]


class TurnText(Small):
    def turns(self, step, optimizers):
        return "optimizer"


class NoLoss(Small):
    def training_step(self, batch):
        return {"error": 1.0}


class NoMetrics(Small):
    def validation_step(self, batch):
        return 3.0


class NoExamples(Small):
    def training_step(self, batch):
        return self.net.weight.mean()

    def loaders(self, run):
        return {"train": run.loader("train", [1, 2], collate_fn=lambda found: "text")}


class ListedLoaders(Small):
    def loaders(self, run):
        return list(super().loaders(run).values())


class ListedOptimizers(Small):
    def optimizers(self):
        return [super().optimizers()]


class VectorLoss(Small):
    def training_step(self, batch):
        return self.net(batch[0])[:, 0]


class VectorMetric(Small):
    def validation_step(self, batch):
        return {"val_loss": self.net(batch[0])[:, 0]}


WRONG = {
    ListedLoaders: "loaders() returned a list; allowed: a dict with train, and validation",
    ListedOptimizers: "optimizers() returned a list; allowed: an optimizer of torch, or a dict of",
    VectorLoss: "training_step returned a tensor of shape (4,) as 'loss'; allowed: numbers, and",
    VectorMetric: "validation_step returned a tensor of shape (4,) as 'val_loss'; allowed: numb",
    NoStep: "NoStep has no method training_step",
    NoLoaders: "NoLoaders has no method loaders",
    NoOptimizers: "NoOptimizers has no method optimizers",
    NoValidationStep: "but no method validation_step",
    OtherLoader: "got the loaders test; allowed: train, and validation",
    PlainLoader: "got a DataLoader as the loader 'train'",
    Streamed: "got LinearLR without total_iters: the number of steps is not known; allowed: "
    "total_iters in the options, or the interval epoch",
    NoOptimizer: "got the optimizers none",
    Sharing: "'one' and 'other' share parameters",
    PlainSchedule: "got a StepLR as a schedule",
    PlateauByEpoch: "got the interval 'epoch' for ReduceLROnPlateau",
    ForeignSchedule: "the optimizer of StepLR is not among those of the module",
    UnknownTurn: "turns(0) names 'critic'; allowed: optimizer",
    FrozenTypo: "frozen(0) names 'net.weihgt'; allowed: net, net.weight, net.bias",
    FrozenText: "frozen(0) returned the str 'net'; allowed: a list of names, such as ['net']",
    FrozenPart: "frozen(0) names 'ne'; allowed: net, net.weight, net.bias",
    TurnText: "turns(0) returned the str 'optimizer'; allowed: a list of names, such as",
    NoLoss: "training_step returned error; allowed: a loss",
    NoMetrics: "validation_step returned a float",
    NoExamples: "override num_examples",
    nn.Linear: "got a Linear; allowed: a TrainingModule",
}


@pytest.fixture
def fail(monkeypatch, tmp_path):
    """Train a module; return the text of its InputError."""

    def run(module, **parameters):
        made = module_loop(module if module is not nn.Linear else lambda *_: nn.Linear(1, 1))
        monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: made)
        case = Case("loop", "small", {"recipe": "pair", "parameters": parameters}, ())
        outcome = attempt(case, tmp_path, ScriptedSupervisor())
        assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError), outcome
        return str(outcome.error)

    return run


@pytest.mark.parametrize("module", WRONG)
def test_a_wrong_module_is_refused_by_name(fail, module):
    assert WRONG[module] in fail(module)


@pytest.mark.parametrize("field", ["patience", "validate_every_steps"])
def test_validation_settings_without_validation_are_refused(fail, field):
    assert f"parameters.{field}: got 2" in fail(OnlyTraining, **{field: 2})


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU can train with fp16")
def test_fp16_is_refused_on_a_cpu(fail):
    assert "parameters.precision: got fp16 on cpu" in fail(Small, precision="fp16")


def test_an_unknown_stopping_metric_is_refused(fail):
    text = fail(Small, patience=1, stopping_metric="val_f1")
    assert "parameters.stopping_metric: got 'val_f1'" in text and "val_loss" in text


def test_an_unknown_metric_of_a_schedule_is_refused_by_its_own_field(fail):
    class Plateau(Small):
        def schedulers(self, optimizers, extent):
            found = ScheduleSettings(name="ReduceLROnPlateau", metric="val_f1")
            return make_schedule(found, optimizers["optimizer"], extent)

    text = fail(Plateau)
    assert "parameters.schedule.metric: got 'val_f1'" in text and "val_loss" in text
    assert "stopping_metric" not in text


def test_an_unknown_metric_of_a_second_schedule_is_refused_by_its_field(fail):
    class Plateau(Small):
        def schedulers(self, optimizers, extent):
            found = ScheduleSettings(name="ReduceLROnPlateau", metric="val_f1")
            return make_schedule(found, optimizers["optimizer"], extent, "second_schedule")

    assert "parameters.second_schedule.metric: got 'val_f1'" in fail(Plateau)


def test_an_unknown_metric_of_a_schedule_without_settings_is_refused_by_the_recipe(fail):
    class Plateau(Small):
        def schedulers(self, optimizers, extent):
            made = lr_scheduler.ReduceLROnPlateau(optimizers["optimizer"])
            return [Schedule(made, "validation", "val_f1")]

    assert "recipe: got 'val_f1', which the validation has not measured" in fail(Plateau)


def test_an_optimizer_that_refuses_its_options_names_the_field(fail):
    class Made(Small):
        def optimizers(self):
            found = settings.OptimizerSettings(options={"betas": [2.0, 0.9]})
            return make_optimizer(found, self.parameters())

    assert "parameters.optimizer: AdamW: Invalid beta" in fail(Made)


PROBLEMS = [
    ({"optimizer": {"name": "Adem"}}, "optimizer.name", "AdamW"),
    ({"optimizer": {"options": {"momentum": 0.9}}}, "optimizer.options", "allowed: betas, eps"),
    ({"optimizer": {"options": {"eps": True}}}, "optimizer.options.eps", "must be a valid number"),
    ({"optimizer": {"name": "Rprop", "weight_decay": 0.1}}, "optimizer.weight_decay", "has no"),
    ({"schedule": {"name": "StepLR"}}, "schedule.options.step_size", "it is required"),
    ({"schedule": {"options": {"gamma": 0.1}}}, "schedule.options", "allowed: nothing"),
    ({"max_grad_norm": 1.0, "max_grad_value": 1.0}, "max_grad_value", "allowed: one of them"),
    ({"accumulation": 0}, "accumulation", "got 0"),
    ({"ema_decay": 1.0}, "ema_decay", "got 1.0"),
]


@pytest.mark.parametrize(("given", "field", "says"), PROBLEMS)
def test_wrong_settings_are_refused_by_the_form(given, field, says):
    with pytest.raises(ConfigError) as refused:
        KINDS["loop"].parse_config({"recipe": "pair", "parameters": given})
    assert says in refused.value.errors[f"parameters.{field}"]


def test_the_settings_need_no_torch():
    code = "import sys, trainops.kinds.loop.settings; sys.exit('torch' in sys.modules)"
    root = Path(settings.__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_the_defaults_are_valid():
    assert Parameters.parse({}).optimizer.name == "AdamW"
