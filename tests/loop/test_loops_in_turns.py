"""Loops that take items in turns: `zip` and kept iterators are refused, `run.combine` is exact."""

import pytest
import torch
from torch.utils.data import TensorDataset

from trainops.runtime.errors import InputError

AFTER = "takes an item after the loop around it has taken another"


def numbers(run, name, length, *, shuffle=False):
    return run.loader(name, TensorDataset(torch.arange(length)), batch_size=1, shuffle=shuffle)


def test_loops_that_are_zipped_are_refused(follow):
    def train(run, parameters):
        first, second = numbers(run, "first", 7), numbers(run, "second", 13)
        for _ in run.epochs(2):
            for _ in zip(first, second, strict=False):
                yield {"loss": 1.0}

    with pytest.raises(ValueError, match=rf"'second' {AFTER}.*run\.combine"):
        follow(train)


def test_an_iterator_that_is_kept_is_refused(follow):
    def train(run, parameters):
        batches = iter(numbers(run, "train", 5))
        for _ in run.steps("step", 12):
            next(batches)
            yield {"loss": 1.0}

    with pytest.raises(ValueError, match=f"'train' {AFTER}"):
        follow(train)


def test_an_iterator_of_an_earlier_pass_is_refused(follow):
    def train(run, parameters):
        batches, kept = numbers(run, "train", 5), []
        for _ in run.epochs(3):
            kept.append(iter(batches))
            next(kept[-1])
            yield {"loss": 1.0}
            if len(kept) == 3:
                next(kept[0])

    with pytest.raises(ValueError, match=f"'train' {AFTER}"):
        follow(train)


def test_an_iterator_that_is_left_is_closed(require_exact):
    """Also where it is dropped only after the next pass has begun."""

    def train(run, parameters):
        batches = numbers(run, "train", 5, shuffle=True)
        sums = run.keep("sums", {"all": 0})
        kept = None
        for _ in run.epochs(3):
            begun = iter(batches)
            for (number,) in begun:
                sums["all"] = sums["all"] * 7 + int(number)
                yield {"loss": float(sums["all"])}
                kept = None
                if batches.num_taken == 3:
                    break
            kept = begun
        assert kept is not None

    expected = require_exact(train)
    assert expected.progress[-1].step == 9


@pytest.mark.parametrize(("mode", "num_steps"), [("min_size", 3), ("max_size_cycle", 7)])
def test_batches_of_several_loaders_are_taken_together(require_exact, mode, num_steps):
    seen = []

    def train(run, parameters):
        first = numbers(run, "first", 7, shuffle=True)
        pairs = run.combine("pairs", [first, numbers(run, "second", 3)], mode)
        total = run.keep("total", {"sum": 0})
        for _ in run.epochs(2):
            for (one,), (other,) in pairs:
                seen.append((int(one), int(other)))
                total["sum"] = total["sum"] * 31 + int(one) * 7 + int(other)
                yield {"loss": float(total["sum"] % 1000)}

    require_exact(train)
    epochs = seen[:num_steps], seen[num_steps : 2 * num_steps]
    for epoch in epochs:
        assert [other for _, other in epoch] == [number % 3 for number in range(num_steps)]
        assert len({one for one, _ in epoch}) == num_steps
    assert epochs[0] != epochs[1]


def test_a_loader_is_combined_once(follow):
    def train(run, parameters):
        first = numbers(run, "first", 3)
        run.combine("pairs", [first, first])
        yield {}

    with pytest.raises(InputError, match=r"got 0: a Passes for 'pairs'"):
        follow(train)
