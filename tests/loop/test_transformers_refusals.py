"""What the driver of Hugging Face Trainers does not do is refused by name."""

import pytest
import torch
from torch import nn

from tests.engines.contract import Case, ScriptedSupervisor, attempt
from tests.loop.hugging import Parameters
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Failed

pytest.importorskip("transformers", reason="the extra transformers is not installed")
from transformers import Trainer, TrainerCallback

from trainops.kinds.loop.transformers import transformers_loop

pytestmark = pytest.mark.slow


class OwnEvaluation(Trainer):
    def evaluate(self, *arguments, **options):
        return {}


class Reporting(TrainerCallback):
    __module__ = "transformers.integrations.another"  # where those of report_to are


def changed(trainer):
    trainer.__class__ = OwnEvaluation
    return trainer


def with_callback(trainer):
    trainer.add_callback(Reporting())
    return trainer


def without_one(trainer):
    trainer.eval_dataset = {"near": trainer.eval_dataset, "far": None}
    return trainer


def without(name):
    def change(trainer):
        setattr(trainer, name, None)
        return trainer

    return change


WRONG = {
    "no trainer": (lambda _: nn.Linear(1, 1), {}, "got a Linear; allowed: a transformers.Trainer"),
    "own evaluation": (changed, {}, "OwnEvaluation has its own method evaluate"),
    "a callback": (with_callback, {}, "got the callback Reporting"),
    "no data": (without("train_dataset"), {}, "got a NoneType as train_dataset"),
    "no evaluation data": (without("eval_dataset"), {}, "got a NoneType as eval_dataset"),
    "no further data": (without_one, {}, "got a NoneType as eval_dataset['far']"),
    "sampling": (
        None,
        {"train_sampling_strategy": "batch_rebalance"},
        "train_sampling_strategy='batch_rebalance'; allowed: random, sequential, group_by_length",
    ),
    "batch metrics": (
        None,
        {"eval_do_concat_batches": False},
        "eval_do_concat_batches=False; allowed: True",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_trainer_that_is_not_followed_is_refused_by_name(monkeypatch, tmp_path, name):
    from tests.loop.hugging_trainer import make

    change, arguments, says = WRONG[name]
    trainer = make(None, Parameters(arguments=arguments))
    loop = transformers_loop(lambda *_: change(trainer) if change else trainer)
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    case = Case("loop", "wrong", {"recipe": "hugging", "device": "cpu"}, ())
    outcome = attempt(case, tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError), outcome
    assert says in str(outcome.error)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_another_device_than_that_of_the_operation_is_refused(monkeypatch, tmp_path):
    from tests.loop.hugging_trainer import make

    loop = transformers_loop(lambda _, parameters: make(None, parameters))  # on the CPU
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    case = Case("loop", "wrong", {"recipe": "hugging", "device": "cuda"}, ())
    outcome = attempt(case, tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Failed) and "allowed: TrainingArguments" in str(outcome.error)
