"""Callbacks of a Trainer are called as by its own train(), also when it is stopped and resumed."""

import random

import pytest
import torch

from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from trainops.runtime import reproducibility
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Failed

pytestmark = pytest.mark.slow
pytest.importorskip("transformers", reason="the extra transformers is not installed")
SEED = 7  # that of the contract
ORDERED = {"train_sampling_strategy": "sequential"}
EARLY = {
    "num_train_epochs": 9, "metric_for_best_model": "eval_loss", "learning_rate": 0.3,
    "logging_strategy": "epoch",
}  # fmt: skip
CASES = {
    "early": (["early", "recorder"], EARLY),
    "early-by-steps": (
        ["recorder", "early"],
        EARLY | {"eval_strategy": "steps", "eval_steps": 4, "gradient_accumulation_steps": 2},
    ),
    "accumulated": (
        ["recorder"],
        {"gradient_accumulation_steps": 4, "logging_strategy": "steps", "logging_steps": 3,
         "max_grad_norm": 0.0, "logging_first_step": True},
    ),
    "meddler": (["meddler", "recorder"], {"logging_strategy": "steps", "logging_steps": 2}),
    "stopper": (["stopper", "recorder"], {"eval_strategy": "no", "bf16": True}),
    "delayed": (["recorder"], {"eval_delay": 2, "num_train_epochs": 3}),
}  # fmt: skip


BEST = {"load_best_model_at_end": True, "learning_rate": 0.3, "num_train_epochs": 4}
BY_STEPS = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 2, "save_steps": 4}
CASES |= {
    "best": ([], BEST | {"save_strategy": "epoch", "save_total_limit": 1}),
    "best-by-steps": (["recorder"], BEST | BY_STEPS | {"metric_for_best_model": "accuracy"}),
    "best-saved": (
        ["recorder", "early"],
        BEST | {"save_strategy": "best", "metric_for_best_model": "loss", "num_train_epochs": 9},
    ),
    "started": (
        ["recorder", "early"],
        EARLY | {"eval_on_start": True, "lr_scheduler_type": "reduce_lr_on_plateau",
                 "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5}},
    ),
    "several-started": (["recorder"], {"eval_on_start": True, "eval_strategy": "no"}),
    "sized": (
        ["recorder", "exporting"],
        {"gradient_accumulation_steps": 4, "num_train_epochs": 3, "logging_strategy": "steps",
         "logging_steps": 1},
    ),
    "several": ([], {"gradient_accumulation_steps": 2}),
    "several-best": (
        ["recorder", "early"],
        BEST | {"save_strategy": "epoch", "metric_for_best_model": "eval_far_loss"},
    ),
}  # fmt: skip


def case(name, **parameters):
    callbacks, arguments = CASES[name]
    given = {"callbacks": callbacks, "arguments": arguments, "several": "several" in name}
    given |= {"iterable": "sized" if "sized" in name else ""} | parameters
    config = {"recipe": "hugging", "parameters": given, "log_every_steps": 2, "threads": 1}
    return Case("loop", name, config | {"device": "cpu", "monitor": "eval_loss"}, ())


def state_of(heard, part):
    path = heard.checkpoints[-1].path / f"{part}.pt"
    return torch.load(path, weights_only=True)  # noqa: TID251


def attribute(saved, callback, name):
    from trainops.kinds.loop.metric_states import decode

    number = saved["names"].index(callback)
    return decode(saved["attributes"][number]["changed"][name])


@pytest.mark.parametrize("name", CASES)
def test_weights_and_events_are_those_of_trainer_train(tmp_path, name):
    from tests.loop.hugging import Parameters
    from tests.loop.hugging_callbacks import Recorder
    from tests.loop.hugging_trainer import make

    arguments = ORDERED | CASES[name][1] | {"output_dir": str(tmp_path / "saved")}
    given = {"dropout": 0.0, "arguments": arguments, "several": "several" in name}
    given["iterable"] = "sized" if "sized" in name else ""
    done = undisturbed(case(name, **given), tmp_path)
    reproducibility.seed_all(SEED)
    trainer = make(None, Parameters.parse({"callbacks": CASES[name][0], **given}))
    trainer.train()
    saved = state_of(done, "model")
    for key, value in trainer.model.state_dict().items():
        assert torch.equal(saved[key], value), key
    evaluated = [evaluation(each.metrics) for each in done.progress]
    assert list(filter(None, evaluated)) == together(trainer.state.log_history)
    if "recorder" not in CASES[name][0]:
        return
    (recorder,) = [e for e in trainer.callback_handler.callbacks if isinstance(e, Recorder)]
    found = attribute(state_of(done, "callbacks"), "Recorder", "events")
    assert [each[0] for each in found] == [each[0] for each in recorder.events]
    for one, other in zip(found, recorder.events, strict=True):
        assert one == other


def evaluation(metrics):
    """Return the metrics of an evaluation, without its times."""
    from tests.loop.hugging_callbacks import plain

    return {name: each for name, each in plain(metrics).items() if name.startswith("eval_")}


def together(logs):
    """Return the metrics of the evaluations of each step, those of all datasets."""
    found = {}
    for each in logs:
        found.setdefault(each["step"], {}).update(evaluation(each))
    return list(filter(None, found.values()))


@pytest.mark.parametrize("name", CASES)
def test_a_trainer_with_callbacks_stopped_or_killed_anywhere_ends_the_same(tmp_path, name):
    found, rng = case(name), random.Random(name)
    expected = undisturbed(found, tmp_path)
    steps = sorted({each.step for each in expected.progress})[:-1]
    require_stop_changes_nothing(found, tmp_path / "all", expected, steps)
    for at in rng.sample(steps[1:], 3):
        require_stop_changes_nothing(found, tmp_path / f"stop{at}", expected, [at - 1, at])
        require_death_changes_nothing(found, tmp_path / f"death{at}", expected, at, 2)


@pytest.mark.parametrize(
    ("callback", "arguments", "says"),
    [
        ("collecting", {}, "Collecting.found has changed, and is a list, which cannot be saved"),
        ("within", {"gradient_accumulation_steps": 2}, "stops the training within an accum"),
        ("early", {}, "got metric_for_best_model=None with EarlyStoppingCallback"),
        ("early", {"eval_strategy": "no", "metric_for_best_model": "loss"}, "got eval_strategy="),
        ("recorder", {"metric_for_best_model": "x"}, "got metric_for_best_model='x'; allowed: e"),
    ],
)
def test_callbacks_that_cannot_be_followed_are_refused(tmp_path, callback, arguments, says):
    given = {"callbacks": [callback], "arguments": arguments}
    config = {"recipe": "hugging", "device": "cpu", "parameters": given}
    outcome = attempt(Case("loop", "wrong", config, ()), tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError), outcome
    assert says in str(outcome.error)
