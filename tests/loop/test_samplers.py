"""Sampler objects of torch as orders of passes; those whose order is not known are refused."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from trainops.kinds.loop.choice import _function
from trainops.kinds.loop.samplers import function_of, options_of
from trainops.runtime.errors import InputError

NUMBERS = range(10)


class OwnGenerator(Sampler):
    """Draws from generators that it has made, and from all global streams."""

    def __init__(self):
        self.numpy, self.python = np.random.default_rng(3), random.Random(3)
        self.torch, self.old = torch.Generator().manual_seed(3), np.random.RandomState(3)

    def __iter__(self):
        yield from self.numpy.permutation(10)
        yield self.python.randrange(10)
        yield torch.randint(10, (), generator=self.torch)
        yield self.old.randint(10)
        yield from (random.randrange(10), int(np.random.randint(10)), torch.randint(10, ()))


class ByEpoch(Sampler):
    """The order follows from the number of the epoch, as that of a DistributedSampler."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(torch.randperm(10, generator=torch.Generator().manual_seed(self.epoch)))


class Pairs(BatchSampler):
    """Batches of neighbours."""

    def __iter__(self):
        for first in self.sampler:
            yield torch.tensor([first, (first + 1) % 10])


KNOWN = {
    "a subset": lambda: SubsetRandomSampler([1, 3, 5]),
    "without replacement": lambda: WeightedRandomSampler([1.0] * 10, 7, replacement=False),
    "a part": lambda: RandomSampler(NUMBERS, num_samples=4),
    "a generator": lambda: SubsetRandomSampler([1, 3, 5], torch.Generator().manual_seed(3)),
    "own generators": OwnGenerator,
    "by epoch": ByEpoch,
    "of one process": lambda: DistributedSampler(NUMBERS, num_replicas=1, rank=0),
    "batches": lambda: Pairs(SubsetRandomSampler([1, 3, 5]), 2, drop_last=False),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_pass_follows_from_the_seed_and_its_number(name):
    order, again = (function_of("train", KNOWN[name](), 10) for _ in range(2))
    torch.manual_seed(1)
    passes = [order(7, number) for number in range(4)]
    torch.manual_seed(2)
    np.random.seed(2)
    assert [again(7, number) for number in (3, 1, 0, 2)] == [passes[n] for n in (3, 1, 0, 2)]
    assert len({str(each) for each in passes}) > 1
    assert all(type(each) in (int, list) for one in passes for each in one)


def test_a_pass_has_what_the_sampler_yields():
    for number in range(3):
        assert sorted(function_of("train", SubsetRandomSampler([5, 1, 3]), 10)(7, number)) == [
            1, 3, 5,
        ]  # fmt: skip
        expected = torch.randperm(10, generator=torch.Generator().manual_seed(number)).tolist()
        assert function_of("train", ByEpoch(), 10)(7, number) == expected
        batches = function_of("train", KNOWN["batches"](), 10)(7, number)
        assert sorted(batches) == [[1, 2], [3, 4], [5, 6]]


class WithoutBase:
    """A sampler as Lightning takes it, of no class of torch."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 10

    def __iter__(self):
        return iter(torch.randperm(10, generator=torch.Generator().manual_seed(self.epoch)))


class Halves:
    """Batches of no class of torch; its generator is within the sampler that it has."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        order = [int(each) for each in self.sampler]
        return iter([order[:5], order[5:]])


@pytest.mark.parametrize("outer", [Halves, lambda inner: BatchSampler(inner, 5, False)])
def test_a_sampler_within_another_one_has_the_number_of_the_pass(outer):
    order = function_of("train", outer(WithoutBase()), 10)
    for number in range(3):
        expected = torch.randperm(10, generator=torch.Generator().manual_seed(number)).tolist()
        assert order(7, number) == [expected[:5], expected[5:]]


def divided(outer):
    return outer(DistributedSampler(NUMBERS, num_replicas=2, rank=0))


@pytest.mark.parametrize("outer", [Halves, lambda inner: BatchSampler(inner, 4, False)])
def test_a_sampler_that_divides_the_examples_is_refused_within_another_one(outer):
    problem = "divides the examples over 2 processes, by its DistributedSampler; allowed: others"
    with pytest.raises(InputError, match=problem):
        function_of("train", divided(outer), 10)
    with pytest.raises(InputError, match=problem):
        function_of("train", Halves(divided(outer)), 10)


def test_the_global_streams_stay_as_they_are():
    order = function_of("train", OwnGenerator(), 10)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    order(7, 0)
    assert torch.equal(torch.rand(3), expected)


def test_another_seed_gives_another_order():
    order = function_of("train", OwnGenerator(), 10)
    assert order(7, 0) != order(8, 0)


def test_usual_samplers_are_options_of_a_loader():
    assert options_of("train", SequentialSampler(NUMBERS), 10) == {"shuffle": False}
    assert options_of("train", RandomSampler(NUMBERS), 10) == {}
    drawn = options_of("train", RandomSampler(NUMBERS, replacement=True, num_samples=3), 10)
    assert drawn["num_samples"] == 3 and torch.equal(drawn["weights"], torch.ones(10))
    weighted = options_of("train", WeightedRandomSampler([1.0, 2.0], 5), 2)
    assert weighted["num_samples"] == 5 and weighted["weights"].tolist() == [1.0, 2.0]
    assert options_of("train", ByEpoch(), 10).keys() == {"sampler"}


class Measuring(Sampler):
    """Stores what it has found out about a pass, whose length is drawn."""

    def __iter__(self):
        order = torch.randperm(10)[: int(torch.randint(1, 10, ()))].tolist()
        self.length, self.first = len(order), order[0]
        return iter(order)

    def __len__(self):
        return self.length


@pytest.mark.parametrize(
    "outer", [lambda inner: inner, lambda inner: BatchSampler(inner, 3, False)]
)
def test_a_sampler_may_store_what_follows_from_the_pass(outer):
    order, again = (function_of("train", outer(Measuring()), 10) for _ in range(2))
    passes = [order(7, number) for number in range(6)]
    assert [again(7, number) for number in reversed(range(6))] == passes[::-1]
    assert len({len(each) for each in passes}) > 1


class Warming(Sampler):
    """Shuffles after its first pass."""

    is_warm = False

    def __iter__(self):
        order = torch.randperm(10).tolist() if self.is_warm else [*NUMBERS]
        self.is_warm = True
        return iter(order)


class Counting(Sampler):
    def __init__(self):
        self.length, self.passes = 0, 0

    def __iter__(self):
        self.passes, self.length = self.passes + 1, 1  # the length follows from the pass
        return iter([self.passes % 10])


class Growing(ByEpoch):
    """Yields more examples in each epoch, which it recognizes by its number."""

    last_epoch, difficulty = -1, 0

    def __iter__(self):
        if self.epoch != self.last_epoch:
            self.last_epoch = self.epoch
            self.difficulty += 2
        return iter(range(self.difficulty))


class Pooling(ByEpoch):
    """Adds an example to a list in each epoch."""

    def __init__(self):
        self.seen, self.pool = {0}, [0]

    def __iter__(self):
        if self.epoch not in self.seen:
            self.seen.add(self.epoch)
            self.pool.append(self.epoch)
        return iter(list(self.pool))


class Stepping(Growing):
    """Counts the calls of set_epoch."""

    def set_epoch(self, epoch):
        self.difficulty += 2


class Shuffling(Sampler):
    """Shuffles a list in place: the order follows from all those before."""

    def __init__(self):
        self.indices = list(NUMBERS)

    def __iter__(self):
        random.shuffle(self.indices)
        return iter(list(self.indices))


class Endless(Sampler):
    def __iter__(self):
        while True:
            yield 0


WRONG = {
    Counting: "the Counting of the loader 'train' has another 'passes' when a pass is repeated",
    Growing: "the Growing of the loader 'train' has another 'difficulty' when a pass is repeated",
    Stepping: "the Stepping of the loader 'train' has another 'difficulty' when a pass is repeated",
    Pooling: "the Pooling of the loader 'train' yields another order when it is asked again",
    Warming: "the Warming of the loader 'train' yields another order when it is asked again",
    Shuffling: "the Shuffling of the loader 'train' yields another order when it is asked again",
    Endless: "the Endless of the loader 'train' yields more than 1000000 items",
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_sampler_whose_order_is_not_known_is_refused(kind):
    with pytest.raises(InputError, match=WRONG[kind]):
        function_of("train", kind(), 10)


class Late(ByEpoch):
    """Counts its passes after the third epoch."""

    late = 0

    def __iter__(self):
        self.late += self.epoch > 3
        return iter([self.late])


def test_a_sampler_whose_order_is_not_known_from_a_later_pass_on_is_refused_there():
    order = function_of("train", Late(), 10)
    assert [order(7, number) for number in range(4)] == [[0]] * 4
    with pytest.raises(InputError, match="has another 'late' when a pass is repeated"):
        order(7, 4)


@pytest.mark.parametrize("kind", [ByEpoch, Measuring])
def test_each_pass_is_drawn_once(kind, monkeypatch):
    drawn, draw = [], kind.__iter__
    monkeypatch.setattr(kind, "__iter__", lambda self: drawn.append(self) or draw(self))
    order = function_of("train", kind(), 10)
    drawn.clear()
    for number in range(4):
        order(7, number)
    assert len(drawn) == 4


def test_a_sampler_that_divides_the_examples_over_processes_is_refused():
    sampler = DistributedSampler(NUMBERS, num_replicas=2, rank=0)
    with pytest.raises(InputError, match="divides the examples over 2 processes"):
        function_of("train", sampler, 10)


class Callable(OwnGenerator):
    def __call__(self, *arguments):
        raise AssertionError("it is no function of the seed and the pass")


def test_a_sampler_that_can_be_called_is_a_sampler_and_a_class_is_none():
    assert _function("train", Callable(), 10)(7, 0) == function_of("train", OwnGenerator(), 10)(
        7, 0
    )
    with pytest.raises(InputError, match="got the class RandomSampler as the sampler of 'train'"):
        _function("train", RandomSampler, 10)
