"""A loader of another length, or of other examples: the checkpoint is refused with both values."""

import json

import pytest
import torch
from torch.utils.data import RandomSampler, Subset, TensorDataset

from trainops.kinds.loop.run import Run
from trainops.runtime.errors import IncompatibleState

BEFORE = 20


def trains(num_examples, *, batch_size=4, **options):
    """Return a loop of 2 epochs over its own data, with a yield in each batch and each epoch."""

    def train(run, _):
        sums = run.keep("sums", {"seen": 0.0})
        if "lengths" in options:
            options["lengths"] = [1 + index % 3 for index in range(num_examples)]
        dataset = TensorDataset(torch.arange(float(num_examples)))
        batches = run.loader("data", dataset, batch_size=batch_size, **options)
        for _ in run.epochs(2):
            for (numbers,) in batches:
                sums["seen"] += numbers.sum().item()
                yield {"loss": sums["seen"]}
            yield {"val_loss": sums["seen"]}

    return train


CHANGES = {"data": ({"num_examples": 12}, 3), "batch size": ({"batch_size": 2}, 10)}
LOADERS = {"in any order": {}, "by length": {"lengths": []}}


@pytest.mark.parametrize("at", [3, 6], ids=["within an epoch", "between epochs"])
@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("change", CHANGES)
def test_another_length_refuses_the_checkpoint(follow, at, loader, change):
    changes, num_batches = CHANGES[change]
    first = follow(trains(BEFORE, **LOADERS[loader]), at=at)
    changed = {"num_examples": BEFORE, **LOADERS[loader], **changes}
    with pytest.raises(IncompatibleState) as refused:
        follow(trains(**changed), resume=first.checkpoints, number=2)
    assert "a pass of the loader 'data' had 5 batches" in str(refused.value)
    assert f"now it has {num_batches}; allowed: " in str(refused.value)


class Shuffled:
    """A sampler of one's own, whose number of examples follows from the dataset."""

    def __init__(self, number):
        self.number = number

    def __iter__(self):
        return iter(torch.randperm(self.number).tolist())

    def __len__(self):
        return self.number


CHOICES = {
    "shuffled": lambda number: {},
    "in order": lambda number: {"shuffle": False},
    "weighted": lambda number: {"weights": [1.0] * number},
    "weighted, as many": lambda number: {"weights": [1.0] * number, "num_samples": BEFORE},
    "balanced": lambda number: {"balance": [index % 2 for index in range(number)]},
    "by length": lambda number: {"lengths": [1 + index % 3 for index in range(number)]},
    "sampler of torch": lambda number: {"sampler": RandomSampler(range(number))},
    "own sampler": lambda number: {"sampler": Shuffled(number)},
    "own function": lambda number: {"sampler": lambda seed, at: torch.arange(number)},
    "batch sampler": lambda number: {
        "batch_size": 1, "batch_sampler": lambda seed, at: torch.arange(number).split(4),
    },
}  # fmt: skip


def loops(num_examples, *, choice="shuffled", wrap=TensorDataset, form="alone", limit=None):
    """Return a loop of 2 epochs over two loaders, of which only `data` may have other examples."""

    def train(run, _):
        sums = run.keep("sums", {"seen": 0.0})
        dataset = wrap(torch.arange(float(num_examples)))
        options = {"batch_size": 4, **CHOICES[choice](num_examples)}
        batches = run.loader("data", dataset, **options)
        other = run.loader("other", TensorDataset(torch.arange(8.0)), batch_size=4)
        if form == "several":
            batches = run.loaders({"data": batches, "other": other})
        if form == "combined":
            batches = run.combine("both", [batches, other], "max_size_cycle", tuple)
        if limit is not None:
            batches.limit_to(limit)
        for _ in run.epochs(2):
            for batch in batches:
                sums["seen"] += 1 + len(str(batch))
                yield {"loss": sums["seen"]}
            yield {"val_loss": sums["seen"]}

    return train


def require_refused(follow, first, now, message):
    with pytest.raises(IncompatibleState, match=message):
        follow(now, resume=first.checkpoints, number=2)


MESSAGE = "the loader '{}' had {} examples; now it has {}; allowed: the data"


@pytest.mark.parametrize("at", [3, 6], ids=["within an epoch", "between epochs"])
@pytest.mark.parametrize("choice", CHOICES)
def test_other_examples_in_as_many_batches_refuse_the_checkpoint(follow, at, choice):
    first = follow(loops(BEFORE, choice=choice), at=at)
    message = MESSAGE.format("data", 20, 19)
    require_refused(follow, first, loops(19, choice=choice), message)


@pytest.mark.parametrize(("form", "name"), [("several", "loaders"), ("combined", "both")])
def test_other_examples_of_one_of_several_loaders_refuse_the_checkpoint(follow, form, name):
    first = follow(loops(BEFORE, form=form), at=3)
    message = MESSAGE.format(name, "20 and 8", "19 and 8")
    require_refused(follow, first, loops(19, form=form), message)


def test_other_examples_are_noticed_after_several_resumes(follow):
    """The number stays in the checkpoint, also of a loader that is not entered again."""

    def train(num_examples):
        def loop(run, _):
            run.keep("sums", {"seen": 0.0})
            once = run.loader("once", TensorDataset(torch.arange(num_examples)), batch_size=4)
            many = run.loader("many", TensorDataset(torch.arange(12)), batch_size=4)
            for epoch in run.epochs(2):
                for _ in once if epoch == 0 else ():
                    yield {"loss": 1.0}
                for _ in many:
                    yield {"loss": 2.0}

        return loop

    first = follow(train(BEFORE), at=6)
    second = follow(train(BEFORE), at=9, resume=first.checkpoints, number=2)
    message = MESSAGE.format("once", 20, 19)
    require_refused(follow, second, train(19), message)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, {}),
        ({"wrap": lambda numbers: Subset(TensorDataset(numbers.repeat(3)), range(20))}, {}),
        ({"choice": "in order", "limit": 2}, {"num_examples": 18}),
        ({"choice": "own function", "limit": 2}, {"num_examples": 18}),
        ({"choice": "in order", "limit": 5}, {"num_examples": 21}),
        ({"form": "several"}, {}),
        ({"form": "combined"}, {}),
    ],
    ids=["same", "a subset", "in order up to a limit", "own order up to a limit",
         "in order up to the limit", "several", "combined"],
)  # fmt: skip
def test_a_position_at_the_same_examples_continues(follow, before, now):
    """Up to a limit, an order without a permutation is the same with more examples behind it."""
    options = {"num_examples": BEFORE, **before}
    first = follow(loops(**options), at=3)
    second = follow(loops(**{**options, **now}), resume=first.checkpoints, number=2)
    assert second.receipts[0].exact


def test_a_checkpoint_of_an_older_version_is_loaded_as_before(follow, monkeypatch):
    """It has no numbers of examples."""
    with monkeypatch.context() as older:
        older.setattr(Run, "examples", lambda _: {})
        first = follow(loops(BEFORE), at=3)
    assert "examples" not in json.loads((first.checkpoints[-1].path / "state.json").read_text())
    second = follow(loops(19), resume=first.checkpoints, number=2, at=5)
    state = json.loads((second.checkpoints[-1].path / "state.json").read_text())
    assert state["examples"] == {"data": [19]}


@pytest.mark.parametrize("examples", [[20], {"data": 20}, {"data": ["many"]}])
def test_numbers_of_examples_that_cannot_be_read_refuse_the_checkpoint(
    follow, monkeypatch, examples
):
    with monkeypatch.context() as damaged:
        damaged.setattr(Run, "examples", lambda _: examples)
        first = follow(loops(BEFORE), at=3)
    message = "the numbers of examples cannot be read"
    require_refused(follow, first, loops(BEFORE), message)
