"""Every optimizer and every schedule of torch: resumed bit for bit, or refused before the start."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler, swa_utils

from tests.engines import toy_model
from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from tests.thinning import quick_some
from trainops.files.verify import verify
from trainops.kind import KINDS
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import IncompatibleState, InputError
from trainops.runtime.loop import Failed

TOY = Case("training", "here", {"recipe": "toy", "batch_size": 8, "epochs": 4}, stops=(1, 5, 13))


def of_all(make):
    return lambda model: [make(list(model.parameters()))]


def muon(model):
    matrices = [each for each in model.parameters() if each.ndim == 2]
    others = [each for each in model.parameters() if each.ndim != 2]
    return [torch.optim.Muon(matrices, lr=0.01), torch.optim.SGD(others, lr=0.01)]


def sparse(model):
    embedded = list(model[0].parameters())
    return [torch.optim.SparseAdam(embedded), torch.optim.SGD(model[1:].parameters(), lr=0.01)]


OPTIMIZERS = {
    "ASGD": of_all(lambda each: torch.optim.ASGD(each, lr=0.05, t0=3)),
    "Adadelta": of_all(lambda each: torch.optim.Adadelta(each, weight_decay=0.01)),
    "Adafactor": of_all(lambda each: torch.optim.Adafactor(each)),
    "Adagrad": of_all(lambda each: torch.optim.Adagrad(each, lr_decay=0.1)),
    "Adam": of_all(lambda each: torch.optim.Adam(each, amsgrad=True)),
    "AdamW": of_all(lambda each: torch.optim.AdamW(each, foreach=True)),
    "Adamax": of_all(lambda each: torch.optim.Adamax(each)),
    "LBFGS": of_all(lambda each: torch.optim.LBFGS(each)),
    "Muon": muon,
    "NAdam": of_all(lambda each: torch.optim.NAdam(each)),
    "RAdam": of_all(lambda each: torch.optim.RAdam(each)),
    "RMSprop": of_all(lambda each: torch.optim.RMSprop(each, momentum=0.9, centered=True)),
    "Rprop": of_all(lambda each: torch.optim.Rprop(each)),
    "SGD": of_all(lambda each: torch.optim.SGD(each, lr=0.01, momentum=0.9, nesterov=True)),
    "SparseAdam": sparse,
}
OTHER_SETTINGS = {
    "SGD without momentum": of_all(lambda each: torch.optim.SGD(each, lr=0.01)),
    "Adam, fused": of_all(lambda each: torch.optim.Adam(each, fused=True)),
    "Adam of a tensor's rate": of_all(lambda each: torch.optim.Adam(each, torch.tensor(0.01))),
    "Adagrad, fused": of_all(lambda each: torch.optim.Adagrad(each, fused=True)),
}
SCHEDULERS = {
    "ChainedScheduler": lambda each: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(each), lr_scheduler.ExponentialLR(each, 0.9)]
    ),
    "ConstantLR": lambda each: lr_scheduler.ConstantLR(each, total_iters=9),
    "CosineAnnealingLR": lambda each: lr_scheduler.CosineAnnealingLR(each, 7),
    "CosineAnnealingWarmRestarts": lambda each: lr_scheduler.CosineAnnealingWarmRestarts(
        each, 3, 2
    ),
    "CyclicLR": lambda each: lr_scheduler.CyclicLR(
        each, 0.001, 0.1, 3, scale_fn=lambda cycle: 1 / cycle, cycle_momentum=False
    ),
    "ExponentialLR": lambda each: lr_scheduler.ExponentialLR(each, 0.9),
    "LambdaLR": lambda each: lr_scheduler.LambdaLR(each, lambda step: 1 / (1 + step)),
    "LinearLR": lambda each: lr_scheduler.LinearLR(each, total_iters=9),
    "MultiStepLR": lambda each: lr_scheduler.MultiStepLR(each, [2, 2, 8, 17]),
    "MultiplicativeLR": lambda each: lr_scheduler.MultiplicativeLR(each, lambda step: 0.9),
    "OneCycleLR": lambda each: lr_scheduler.OneCycleLR(each, 0.1, total_steps=21),
    "PolynomialLR": lambda each: lr_scheduler.PolynomialLR(each, 20),
    "ReduceLROnPlateau": lambda each: lr_scheduler.ReduceLROnPlateau(
        each, patience=0, threshold=0.5
    ),
    "SequentialLR": lambda each: lr_scheduler.SequentialLR(
        each,
        [lr_scheduler.LinearLR(each, total_iters=4), lr_scheduler.CosineAnnealingLR(each, 8)],
        [4],
    ),
    "StepLR": lambda each: lr_scheduler.StepLR(each, 3),
    "SWALR": lambda each: swa_utils.SWALR(each, 0.05, anneal_epochs=7),
}
CANNOT = {"LBFGS"}
OLDER_NAMES = {"LRScheduler", "_LRScheduler", "Optimizer"}


def test_every_optimizer_of_torch_has_a_case():
    assert set(OPTIMIZERS) == subclasses(torch.optim, torch.optim.Optimizer)


def test_every_schedule_of_torch_has_a_case():
    found = subclasses(lr_scheduler, lr_scheduler.LRScheduler)
    assert set(SCHEDULERS) == found | subclasses(swa_utils, lr_scheduler.LRScheduler)


def subclasses(module, base):
    classes = {name: each for name, each in vars(module).items() if isinstance(each, type)}
    return {name for name, each in classes.items() if issubclass(each, base)} - OLDER_NAMES


@pytest.fixture
def using(monkeypatch):
    """Return what has the toy recipe bring optimizers and schedules of its own."""
    original = toy_model.build

    def use(optimizers, schedulers=None, *, dtype=torch.float32, has_embedding=False):
        def build(parameters, context):
            made = original(parameters, context)
            if has_embedding:
                made = with_embedding(made)
            return replace(
                made,
                model=made.model.to(dtype),
                train=to(made.train, dtype),
                validation=to(made.validation, dtype),
                optimizers=optimizers,
                schedulers=schedulers,
            )

        monkeypatch.setattr(toy_model, "build", build)

    return use


def with_embedding(made):
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(16, 3))

    def words(examples):
        numbers = (examples.inputs[0] * 3).round().long().clamp(-4, 4) + 4
        return type(examples)((numbers,), examples.targets)

    return replace(made, model=model, train=words(made.train), validation=words(made.validation))


def to(examples, dtype):
    inputs = [each.to(dtype) if each.is_floating_point() else each for each in examples.inputs]
    return type(examples)(tuple(inputs), examples.targets)


def require_exact(root, case=TOY):
    expected = undisturbed(case, root)
    require_stop_changes_nothing(case, root / "stopped", expected, case.stops)
    require_death_changes_nothing(case, root / "died", expected, at=12, every_steps=5)
    report = verify(expected.checkpoints[-1].path)
    assert report.passed, report.checks[-1].detail


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_some(sorted(OPTIMIZERS.keys() - CANNOT), every=7))
def test_an_optimizer_is_resumed_bit_for_bit(name, using, tmp_path):
    using(OPTIMIZERS[name], has_embedding=name == "SparseAdam")
    require_exact(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_some(OTHER_SETTINGS, every=len(OTHER_SETTINGS)))
def test_other_settings_of_an_optimizer_are_resumed_bit_for_bit(name, using, tmp_path):
    using(OTHER_SETTINGS[name])
    require_exact(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - CANNOT - {"SparseAdam"}))
def test_weights_of_another_type_are_resumed_bit_for_bit(name, dtype, using, tmp_path):
    """torch casts what an optimizer keeps to its parameter's type as it takes it over."""
    using(OPTIMIZERS[name], dtype=dtype)
    require_exact(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_some(SCHEDULERS, every=10))
def test_a_schedule_is_resumed_bit_for_bit(name, using, tmp_path):
    using(OPTIMIZERS["SGD"], lambda optimizers, total: [SCHEDULERS[name](optimizers[0])])
    require_exact(tmp_path)


def test_what_wants_the_loss_again_is_refused_before_the_first_step(using, tmp_path):
    using(OPTIMIZERS["LBFGS"])
    supervisor = ScriptedSupervisor()
    outcome = attempt(TOY, tmp_path, supervisor)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError)
    assert "LBFGS" in str(outcome.error) and "closure" in str(outcome.error)
    assert not supervisor.progress and not supervisor.checkpoints


def test_a_plateau_receives_the_monitored_metric_at_the_end_of_each_epoch(using):
    using(
        OPTIMIZERS["SGD"],
        lambda optimizers, total: [SCHEDULERS["ReduceLROnPlateau"](optimizers[0])],
    )
    job = make()
    rates = [value["learning_rate"] for value in run_to_end(job) if "learning_rate" in value]
    assert rates == pytest.approx([0.01, 0.001, 0.0001, 0.00001])
    best = job.trainer.schedulers[0].best
    assert best == job.progress.history.values("val_loss")[0]


def test_a_plateau_that_waits_for_the_opposite_is_refused(using):
    using(
        OPTIMIZERS["SGD"],
        lambda optimizers, total: [lr_scheduler.ReduceLROnPlateau(optimizers[0], mode="max")],
    )
    with pytest.raises(InputError, match=r"mode.*'max'.*'min'"):
        make()


class Strange(lr_scheduler.LRScheduler):
    def step(self, loss, norm):
        """Take two figures that nobody has."""


def test_a_schedule_that_wants_more_is_refused_before_the_first_step(using):
    def schedulers(optimizers, total):
        scheduler = Strange.__new__(Strange)
        scheduler.optimizer = optimizers[0]
        return [scheduler]

    using(OPTIMIZERS["SGD"], schedulers)
    with pytest.raises(InputError, match=r"Strange.*loss, norm"):
        make()


class Slow(torch.optim.SGD):
    """Keeps a mean over all weights of a row, from its third step on, of a shape of its own."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for each in group["params"]:
                kept = self.state[each]
                kept["count"] = kept.get("count", 0) + 1
                if kept["count"] >= 3:
                    kept["rows"] = each.detach().flatten(1).mean(1) if each.ndim > 1 else math.pi


@pytest.mark.slow
def test_an_optimizer_of_a_user_may_keep_what_it_likes(using, tmp_path):
    using(of_all(lambda each: Slow(each, lr=0.01, momentum=0.9)))
    require_exact(tmp_path)


class Growing(lr_scheduler.LambdaLR):
    """Remembers every rate."""

    def __init__(self, optimizer):
        self.rates = []
        super().__init__(optimizer, lambda step: 0.9**step)

    def step(self, epoch=None):
        self.rates = [*self.rates, self.optimizer.param_groups[0]["lr"]]
        super().step(epoch)


@pytest.mark.slow
def test_a_schedule_of_a_user_may_keep_a_list_that_grows(using, tmp_path):
    using(OPTIMIZERS["SGD"], lambda optimizers, total: [Growing(optimizers[0])])
    require_exact(tmp_path)


@pytest.mark.parametrize(
    ("name", "damage", "problem"),
    [
        ("Adafactor", {"row_var": torch.ones(5, 1)}, "row_var"),
        ("Adafactor", {"row_var": torch.ones(6, 4)}, "row_var"),
        ("Adam", {"exp_avg": torch.ones(6, 4).double()}, "float64"),
        ("Adam", {"exp_avg": 0.5}, "exp_avg"),
        ("Adam", {"exp_avg_sq": None}, "exp_avg_sq"),
    ],
)
def test_a_state_that_is_not_the_optimizers_is_refused(name, damage, problem, using):
    using(OPTIMIZERS[name])
    donor, job = make(), make()
    donor.advance()
    state = freeze(donor.state_dict())
    state["optimizer"][0]["state"][0].update(damage)
    with pytest.raises(IncompatibleState, match=problem):
        job.load_state_dict(state)


def test_a_moment_that_is_missing_is_refused_and_one_of_a_parameter_never_moved_is_not(using):
    using(OPTIMIZERS["Adam"])
    donor, job = make(), make()
    donor.advance()
    state = freeze(donor.state_dict())
    never_moved = copy.deepcopy(state)
    del never_moved["optimizer"][0]["state"][0]
    job.load_state_dict(never_moved)
    del state["optimizer"][0]["state"][0]["exp_avg"]
    with pytest.raises(IncompatibleState, match=r"exp_avg"):
        job.load_state_dict(state)


def test_judging_a_state_touches_neither_weights_nor_optimizer(using):
    using(OPTIMIZERS["Adafactor"], lambda each, total: [SCHEDULERS["StepLR"](each[0])])
    donor, job = make(), make()
    donor.advance()
    state, before = freeze(donor.state_dict()), freeze(job.state_dict())
    job.trainer.check({"scheduler": [], **state})
    after = freeze(job.state_dict())
    assert str(after) == str(before)
    assert all(each.grad is None for each in job.trainer.model.parameters())


def make():
    engine = KINDS["training"]
    return engine.make_job(engine.parse_config({"seed": 7, **TOY.config}))


def run_to_end(job):
    while job.step < job.total_steps:
        yield job.advance()
