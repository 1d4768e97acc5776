"""A training that stops after a number of epochs or batches, and continues from there."""

import random

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    require_stop_changes_nothing,
    undisturbed,
)
from tests.thinning import quick_some
from trainops.kind import KINDS
from trainops.runtime.durations import Duration, max_seconds, parse_duration
from trainops.runtime.errors import ConfigError
from trainops.runtime.loop import Succeeded

TOY = {"recipe": "toy", "epochs": 4, "threads": 1}
UNITS = "a whole number and a unit, such as "
TIMES = "90s (seconds), 30m (minutes), 2h (hours)"
PROGRAM = {
    "name": "epoch", "length": 4, "body": [
        {"name": "train", "length": 3, "workers": 0, "body": ["work", "yield"]}, "work",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected", "seconds"),
    [
        ("10ep", Duration(10, "ep"), None),
        ("500ba", Duration(500, "ba"), None),
        ("90s", Duration(90, "s"), 90),
        ("30m", Duration(30, "m"), 1800),
        ("2h", Duration(2, "h"), 7200),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text, expected, seconds):
    assert parse_duration(text) == expected
    assert expected.seconds == seconds


@pytest.mark.parametrize("text", ["", "10", "ep", "0ep", "-1ep", "1.5h", "10 ep", "10EP", "10d"])
@pytest.mark.parametrize("kind", ["training", "loop"])
def test_anything_else_is_refused_with_the_units(kind, text):
    with pytest.raises(ConfigError) as refused:
        recipe = {"training": "toy", "loop": "program"}[kind]
        KINDS[kind].parse_config({"recipe": recipe, "limits": {"max_duration": text}})
    allowed = f"{UNITS}10ep (epochs), 500ba (batches), {TIMES}"
    assert refused.value.errors == {"limits.max_duration": f"got {text!r}; allowed: {allowed}"}


@pytest.mark.parametrize("text", ["10ep", "500ba"])
def test_other_kinds_have_times_only(text):
    with pytest.raises(ConfigError) as refused:
        KINDS["rl"].parse_config({"limits": {"max_duration": text}})
    problem = refused.value.errors["limits.max_duration"]
    assert problem == f"got {text!r}; allowed: {UNITS}{TIMES}"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, None),
        ({"max_duration": None, "max_duration_seconds": None}, None),
        ({"max_duration": "2m"}, 120),
        ({"max_duration": "2m", "max_duration_seconds": 100.0}, 100),
        ({"max_duration": "1m", "max_duration_seconds": 100.0}, 60),
        ({"max_duration": "7ba", "max_duration_seconds": 100.0}, 100),
        ({"max_duration": "7ep"}, None),
    ],
)
def test_the_shorter_time_applies(limits, expected):
    assert max_seconds(limits) == expected


def steps_by_hand(length, *, batches, accumulation, epochs):
    """Return the steps of a training that counts its batches one by one, and what it counted."""
    duration, steps, done = parse_duration(length), 0, 0
    for epoch in range(epochs):
        for first in range(0, batches, accumulation):
            if duration.unit == "ba" and done >= duration.number:
                return steps, done
            steps += 1
            done += min(accumulation, batches - first)
        if duration.unit == "ep" and epoch + 1 == duration.number:
            return steps, epoch + 1
    return steps, epochs if duration.unit == "ep" else done


def case(length, **config):
    limits = {"limits": {"max_duration": length}} if length else {}
    return Case("training", "toy", {**TOY, **config, **limits}, ())


def program(length, body=PROGRAM):
    limits = {"limits": {"max_duration": length}} if length else {}
    config = {"recipe": "program", "parameters": {"body": [body]}, "monitor": "calls"}
    return Case("loop", "program", {**config, "mode": "max", "threads": 1, **limits}, ())


def files(checkpoint):
    return {each.name: each.blake3 for each in checkpoint.artifacts}


def every_checkpoint(case, root):
    supervisor = ScriptedSupervisor()
    assert isinstance(attempt(case, root, supervisor, every_steps=1), Succeeded)
    return {each.step: each for each in supervisor.checkpoints}


def result_of(case, root):
    outcome = attempt(case, root)
    assert isinstance(outcome, Succeeded), outcome
    return outcome.result


RNG = random.Random(5)  # noqa: S311
DRAWN = [
    (
        f"{RNG.randint(1, 22)}ba" if RNG.random() < 0.7 else f"{RNG.randint(1, 5)}ep",
        {"batch_size": RNG.choice([8, 13, 64]), "gradient_accumulation": RNG.choice([1, 2, 3])},
    )
    for _ in range(24)
]


@pytest.mark.parametrize(("length", "config"), quick_some(DRAWN, every=6))
def test_a_training_stops_where_a_count_by_hand_does(tmp_path, length, config):
    batches = -(-38 // config["batch_size"])
    whole, _ = steps_by_hand(
        "999ep", batches=batches, accumulation=config["gradient_accumulation"], epochs=4
    )
    expected, counted = steps_by_hand(
        length, batches=batches, accumulation=config["gradient_accumulation"], epochs=4
    )
    limited, free = case(length, **config), every_checkpoint(case(None, **config), tmp_path / "a")
    final = undisturbed(limited, tmp_path / "b").checkpoints[-1]
    assert final.step == expected
    assert files(final) == files(free[expected])
    result = result_of(limited, tmp_path / "c")
    unit = {"ep": "epochs", "ba": "batches"}[length[-2:]]
    is_whole = expected == whole
    assert result.get("stopped_by") == (None if is_whole else f"max_duration at {counted} {unit}")


def test_a_training_without_a_finished_epoch_has_a_result(tmp_path):
    result = result_of(case("2ba", batch_size=8), tmp_path)
    assert (result["steps"], result["epochs"], result["final"]) == (2, 0, {})
    assert result["best"]["value"] is None
    assert result["stopped_by"] == "max_duration at 2 batches"


@pytest.mark.parametrize(
    "limited",
    [case("7ba", batch_size=8, gradient_accumulation=2), program("8ba"), program("2ep")],
    ids=str,
)
def test_stopped_and_resumed_it_ends_at_the_same_step(tmp_path, limited):
    expected = undisturbed(limited, tmp_path)
    last = expected.checkpoints[-1].step
    require_stop_changes_nothing(limited, tmp_path, expected, range(last))


@pytest.mark.parametrize(
    ("limited", "longer"),
    [
        (case("7ba", batch_size=8), case("12ba", batch_size=8)),
        (case("2ep", batch_size=8), case(None, batch_size=8)),
        (program("5ba"), program("10ba")),
        (program("2ep"), program("3ep")),
        (program("1ep"), program(None)),
    ],
    ids=str,
)
def test_continued_with_more_it_ends_as_if_it_had_been_that_long(tmp_path, limited, longer):
    begun = undisturbed(limited, tmp_path / "begun").checkpoints[-1]
    expected = undisturbed(longer, tmp_path / "expected")
    supervisor = ScriptedSupervisor()
    outcome = attempt(longer, tmp_path / "begun", supervisor, resume=[begun], number=2)
    assert isinstance(outcome, Succeeded), outcome
    assert files(supervisor.checkpoints[-1]) == files(expected.checkpoints[-1])
    assert begun.step < supervisor.checkpoints[-1].step


@pytest.mark.parametrize(
    ("length", "steps", "stopped_by"),
    [
        ("5ba", 5, "max_duration at 5 batches"),
        ("6ba", 6, "max_duration at 6 batches"),
        ("2ep", 6, "max_duration at 2 epochs"),
        ("4ep", 12, None),
        ("12ba", 12, "max_duration at 12 batches"),
        ("13ba", 12, None),
    ],
)
def test_a_loop_stops_after_its_batches_and_epochs(tmp_path, length, steps, stopped_by):
    result = result_of(program(length), tmp_path)
    assert (result["steps"], result.get("stopped_by")) == (steps, stopped_by)
    assert result["epochs"] == {"5ba": 1, "6ba": 1, "2ep": 2}.get(length, result["epochs"])


def test_the_loader_train_counts_and_other_loaders_do_not(monkeypatch, tmp_path):
    def train(run, parameters):
        model = run.keep("model", nn.Linear(1, 1))
        data = TensorDataset(torch.arange(6.0)[:, None])
        first = run.loader("first", data, batch_size=3)
        batches = run.loader("train", data, batch_size=2)
        for _ in run.epochs(4):
            for each in first:
                yield {"val_loss": model(each[0]).detach().sum()}
            for each in batches:
                yield {"val_loss": model(each[0]).detach().sum()}

    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: train)
    limits = {"limits": {"max_duration": "4ba"}}
    script = Case("loop", "script", {"recipe": "digits_loop", **limits}, ())
    assert result_of(script, tmp_path)["steps"] == 2 + 3 + 2 + 1
