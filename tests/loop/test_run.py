"""What a training loop may do, and what is refused by name."""

import random
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.engines.contract import Case, undisturbed
from trainops.kind import KINDS
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.run import Run
from trainops.runtime.errors import IncompatibleState, InputError, NonFiniteLoss


def test_a_yield_may_stand_before_the_loop_within(follow):
    seen = []

    def train(run, parameters):
        counts = run.keep("counts", {"steps": 0})
        for epoch in run.epochs(2):
            yield {"begins": epoch}
            for step in run.steps("step", 3):
                counts["steps"] += 1
                seen.append((epoch, step))
                yield {"val_loss": 1.0 / counts["steps"]}

    first = follow(train, at=3)
    second = follow(train, resume=first.checkpoints, number=2)
    assert second.progress[-1].step == 8
    assert seen == [(epoch, step) for epoch in range(2) for step in range(3)]


def test_whatever_the_way_back_does_to_kept_state_is_undone(follow):
    ends = []

    def train(run, parameters):
        sums = run.keep("sums", {"value": 0})
        for _ in run.epochs(3):
            sums["value"] = 0  # also on the way back
            for step in run.steps("step", 4):
                sums["value"] += step
                yield {"val_loss": 1.0}
            ends.append(sums["value"])
            yield {"val_loss": 0.5}

    first = follow(train, at=3)
    follow(train, resume=first.checkpoints, number=2)
    assert ends == [6, 6, 6]


@pytest.mark.parametrize("at", range(1, 12))
def test_a_loop_may_be_entered_several_times_in_one_iteration(follow, at):
    seen = []

    def train(run, parameters):
        steps = run.steps("step", 3)
        for epoch in run.epochs(2):
            for turn in range(2):
                for step in steps:
                    seen.append((epoch, turn, step))
                    yield {}

    first = follow(train, at=at)
    follow(train, resume=first.checkpoints, number=2)
    assert seen == [(e, turn, step) for e in range(2) for turn in range(2) for step in range(3)]


def test_the_best_model_is_that_of_the_best_yield(follow):
    def train(run, parameters):
        model = run.keep("model", nn.Linear(1, 1, bias=False))
        for epoch in run.epochs(4):
            nn.init.constant_(model.weight, epoch)
            yield {"val_loss": abs(epoch - 2.0)}

    done = follow(train)
    last = done.checkpoints[-1]
    best = torch.load(last.path / "best_model.pt", weights_only=True)  # noqa: TID251
    assert best["model"]["weight"].item() == 2.0
    assert [each.type.value for each in done.checkpoints] == ["final"]


def no_loop(run, parameters):
    yield {"val_loss": 1.0}


def no_yield(run, parameters):
    for _ in run.epochs(2):
        pass
    if parameters is None:
        yield {}


def late_keep(run, parameters):
    for _ in run.epochs(2):
        run.keep("late", {})
        yield {}


def keeps(name, thing):
    def train(run, parameters):
        run.keep(name, thing)
        for _ in run.epochs(1):
            yield {}

    return train


def yields(value):
    def train(run, parameters):
        for _ in run.epochs(1):
            yield value

    return train


def loads(dataset, **options):
    def train(run, parameters):
        for _ in run.loader("data", dataset, **options):
            yield {}

    return train


WRONG = {
    "a yield outside of loops": (no_loop, "yields outside of the run's loops"),
    "no yield at all": (no_yield, "yielded nothing"),
    "keep in a loop": (late_keep, "keep everything before the first loop"),
    "no state": (keeps("thing", object()), "object without state_dict"),
    "a reserved name": (keeps("state", {}), "got the name 'state'"),
    "a path as a name": (keeps("../x", {}), "got the name '../x'"),
    "no metrics": (yields(3.0), "yielded a float"),
    "a text as a metric": (yields({"val_loss": "high"}), "yielded a str as 'val_loss'"),
    "a vector as a metric": (yields({"val_loss": torch.ones(2)}), "yielded a tensor of shape (2,)"),
    "no dataset": (loads(object()), "allowed: datasets with __len__ and __getitem__, and iterable"),
    "an empty dataset": (loads(TensorDataset(torch.empty(0, 1))), "has no batch"),
    "no batch size": (loads(TensorDataset(torch.ones(2)), batch_size=0), "batch_size 0"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_work_is_refused_by_name(follow, wrong):
    train, says = WRONG[wrong]
    with pytest.raises(InputError) as refused:
        follow(train)
    assert says in str(refused.value)


def test_a_loss_that_is_not_finite_fails_at_its_step(follow):
    def train(run, parameters):
        for step in run.steps("step", 9):
            yield {"train_loss": float("nan") if step == 4 else 1.0, "val_accuracy": float("nan")}

    with pytest.raises(NonFiniteLoss, match=r"train_loss became nan in step 5 \(step 5 of 9\)"):
        follow(train)


def test_a_function_without_yield_is_no_loop(follow):
    with pytest.raises(TypeError, match="no generator function"):
        follow(lambda run, parameters: None)


def test_code_that_takes_another_way_refuses_the_state(follow):
    def train(run, parameters):
        run.keep("counts", {})
        for _ in run.epochs(2):
            for _ in run.steps("step", 3):
                yield {}

    def changed(run, parameters):
        run.keep("counts", {})
        for _ in run.epochs(2):
            for _ in run.steps("another", 3):
                yield {}

    first = follow(train, at=4)
    with pytest.raises(IncompatibleState, match="'another' was not entered"):
        follow(changed, resume=first.checkpoints, number=2)


def test_other_things_that_are_kept_refuse_the_state(follow):
    def train(run, parameters):
        run.keep("model", nn.Linear(2, 1))
        for _ in run.epochs(2):
            yield {}

    def changed(run, parameters):
        run.keep("model", nn.Linear(3, 1))
        for _ in run.epochs(2):
            yield {}

    first = follow(train, at=1)
    with pytest.raises(IncompatibleState, match=r"model\.weight"):
        follow(changed, resume=first.checkpoints, number=2)


class Augmented(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.tensor([index, torch.rand(()), random.random(), np.random.random()])


def passes(num_workers, number=0, first=0):
    run = Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={})
    loader = run.loader("train", Augmented(), batch_size=4, num_workers=num_workers)
    return [each.tolist() for each in loader.source.items(number, first)]


@pytest.mark.slow
def test_augmentation_is_the_same_with_any_number_of_workers_and_from_any_batch():
    whole = passes(0)
    assert [len(each) for each in whole] == [4, 4, 2]
    assert sorted(each[0] for batch in whole for each in batch) == list(range(10))
    assert (
        passes(2) == whole and passes(0, first=1) == whole[1:] and passes(2, first=2) == whole[2:]
    )
    drawn = [each[1:] for batch in (*whole, *passes(0, number=1)) for each in batch]
    assert len({tuple(each) for each in drawn}) == 20  # each example has its own, in each pass


def test_a_loader_leaves_the_global_streams_alone():
    torch.manual_seed(1)
    expected = torch.rand(3).tolist()
    torch.manual_seed(1)
    passes(0), passes(2)
    assert torch.rand(3).tolist() == expected


def test_a_loop_can_be_nested_in_itself_by_no_name():
    run = Run(Course(lambda: None), seed=0, device=torch.device("cpu"), inputs={})
    outer = run.steps("same", 2)
    with pytest.raises(ValueError, match="used in two places"):
        next(islice(((a, b) for a in outer for b in run.steps("same", 2)), 1))


def evaluates(names):
    """Call one function within an epoch and after it, each with the loader of this name."""

    def evaluate(run, batches, seen):
        for (inputs,) in batches:
            seen["sum"] += inputs.sum().item()
            yield {"sum": seen["sum"]}

    def train(run, parameters):
        seen = run.keep("seen", {"sum": 0.0})
        held_out = TensorDataset(torch.arange(4.0))
        train = run.loader("train", TensorDataset(torch.arange(6.0)), batch_size=2)
        loaders = {
            name: run.loader(name, held_out, batch_size=2, shuffle=False)
            for name in dict.fromkeys(names)
        }
        within, after = (loaders[name] for name in names)
        for _ in run.epochs(2):
            for (inputs,) in train:
                seen["sum"] += inputs.sum().item()
                if train.num_taken == 2:
                    yield from evaluate(run, within, seen)
                yield {"sum": seen["sum"]}
            yield from evaluate(run, after, seen)

    return train


def test_a_loader_of_two_places_is_refused_and_two_loaders_are_exact(follow, require_exact):
    says = (
        "the loop 'validation' is used in two places: within 'train' and within 'epoch'; .*allowed:"
        r' a loop with a name of its own for each, such as run\.loader\("validation_2", dataset\)'
    )
    with pytest.raises(ValueError, match=says):
        follow(evaluates(["validation", "validation"]))
    require_exact(evaluates(["validation", "validation_2"]))


@pytest.mark.slow
def test_loader_workers_change_nothing(follow):
    def trains(num_workers):
        def train(run, parameters):
            model = run.keep("model", nn.Linear(4, 1))
            optimizer = run.keep("optimizer", torch.optim.SGD(model.parameters(), 0.01))
            batches = run.loader("train", Augmented(), batch_size=4, num_workers=num_workers)
            for _ in run.epochs(3):
                for batch in batches:
                    loss = model(batch.float()).square().mean() + torch.rand(())
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    yield {"train_loss": loss}

        return train

    def end(done):
        return {each.name: each.blake3 for each in done.checkpoints[-1].artifacts}

    expected = follow(trains(0))
    stopped = follow(trains(2), at=4)
    assert end(follow(trains(2), resume=stopped.checkpoints, number=2)) == end(expected)


@pytest.mark.slow
def test_the_built_in_loop_learns(tmp_path):
    config = {"recipe": "digits_loop", "parameters": {"epochs": 8}, "device": "cpu"}
    case = Case("loop", "digits", config, ())
    curve = undisturbed(case, tmp_path).curve
    assert curve[max(curve)]["val_accuracy"] > 0.85


def test_the_config_names_no_field_that_a_loop_ignores():
    fields = KINDS["loop"].json_schema()["properties"]
    assert not fields.keys() & {"epochs", "batch_size", "learning_rate", "optimizer", "scheduler"}
