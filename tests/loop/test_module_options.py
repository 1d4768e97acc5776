"""Options of optimizers and schedules: those of torch, with its defaults; wrong ones are named."""

import inspect

import jsonschema
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from trainops.kinds.loop.module import make_optimizer
from trainops.kinds.loop.options import OPTIMIZER_OPTIONS, SCHEDULE_OPTIONS
from trainops.kinds.loop.settings import OptimizerSettings, ScheduleSettings
from trainops.runtime.errors import ConfigError

OF_SETTINGS = {"params", "lr", "weight_decay", "optimizer", "last_epoch"}
OF_MACHINE = {"foreach", "maximize", "capturable", "differentiable", "fused"}
OTHERS = {  # whose values are no numbers, or that replace others
    "Adafactor": {"eps"}, "CyclicLR": {"scale_fn"}, "Muon": {"ns_coefficients"},
    "OneCycleLR": {"epochs", "steps_per_epoch"},
}  # fmt: skip
WITH_FUNCTION = {"LRScheduler", "LambdaLR", "MultiplicativeLR", "ChainedScheduler", "SequentialLR"}
BY_LENGTH = {"T_max", "total_steps", "total_iters"}
KNOWN = [
    *((torch.optim, name, model) for name, model in OPTIMIZER_OPTIONS.items()),
    *((lr_scheduler, name, model) for name, model in SCHEDULE_OPTIONS.items() if name != "none"),
]


def test_every_optimizer_and_every_schedule_that_needs_no_function_is_known():
    assert {*OPTIMIZER_OPTIONS, "Optimizer"} == {
        name for name, each in vars(torch.optim).items()
        if isinstance(each, type) and issubclass(each, torch.optim.Optimizer)
    }  # fmt: skip
    assert {*SCHEDULE_OPTIONS} - {"none"} | WITH_FUNCTION == set(lr_scheduler.__all__)


@pytest.mark.parametrize(("module", "name", "model"), KNOWN, ids=[name for _, name, _ in KNOWN])
def test_the_options_and_their_defaults_are_those_of_torch(module, name, model):
    signature = inspect.signature(getattr(module, name)).parameters
    left_out = OF_SETTINGS | OF_MACHINE | OTHERS.get(name, set())
    assert set(model.model_fields) == set(signature) - left_out
    for option, field in model.model_fields.items():
        default = signature[option].default
        if option in BY_LENGTH and not field.is_required() and field.default is None:
            continue
        given = inspect.Parameter.empty if field.is_required() else field.default
        assert (tuple(given) if isinstance(given, list) else given) == default, option


@pytest.mark.parametrize("name", sorted(OPTIMIZER_OPTIONS))
def test_torch_takes_all_options_with_their_defaults(name):
    fields = OPTIMIZER_OPTIONS[name].model_fields
    options = {each: field.default for each, field in fields.items() if field.default is not None}
    settings = OptimizerSettings.parse({"name": name, "options": options})
    assert type(make_optimizer(settings, [nn.Parameter(torch.ones(2, 2))])).__name__ == name


WRONG = {
    "type": ("Adam", {"eps": "x"}, "options.eps", "must be a valid number"),
    "bound": ("SGD", {"momentum": -0.5}, "options.momentum", "got -0.5; must be greater than"),
    "length": ("Adam", {"betas": [0.9]}, "options.betas", "at least 2 items"),
    "choice": ("Muon", {"adjust_lr_fn": "own"}, "options.adjust_lr_fn", "'match_rms_adamw'"),
    "unknown": ("SGD", {"betas": [0.9, 0.9]}, "options", "betas is unknown; allowed: momentum"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_option_is_named(case):
    name, options, path, problem = WRONG[case]
    raw = {"name": name, "options": options}
    with pytest.raises(ConfigError) as refused:
        OptimizerSettings.parse(raw)
    assert problem in refused.value.errors[path]
    if case != "unknown":  # what the form and the API serve says the same
        assert not jsonschema.Draft202012Validator(OptimizerSettings.model_json_schema()).is_valid(
            raw
        )


def test_a_missing_option_is_named():
    with pytest.raises(ConfigError) as refused:
        ScheduleSettings.parse({"name": "StepLR", "options": {"gamma": 0.5}})
    assert refused.value.errors == {"options.step_size": "nothing was given; it is required"}
