"""The order of a pass, beside the same written by hand; and what is refused."""

from collections import Counter
from itertools import chain

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, TensorDataset

from trainops.kinds.loop.batches import PassBatches
from trainops.kinds.loop.choice import Choice
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.orders import BATCHES_PER_WINDOW
from trainops.kinds.loop.run import Run
from trainops.kinds.loop.seeding import generator_of, seed_of
from trainops.runtime.errors import InputError

MANY = 5_000_000  # examples: tensors above 32 MiB are given back to the system


def batches(number=0, num_examples=10, batch_size=4, drop_last=False, **choice):
    order = Choice(**choice).make("train", num_examples, "3/train", batch_size, drop_last)
    found = [each.tolist() for each in order.batches(number)]
    assert order.fixed_length() in (None, len(found))
    return found


def cut(indices, size=4):
    return [list(indices[first : first + size]) for first in range(0, len(indices), size)]


def generator(number, what="order"):
    return generator_of(f"3/train/pass {number}/{what}")


@pytest.mark.parametrize("number", [0, 5])
def test_a_shuffled_pass_is_a_permutation_of_its_own(number):
    expected = torch.randperm(10, generator=generator(number)).tolist()
    assert batches(number) == cut(expected)
    assert batches(number, drop_last=True) == cut(expected)[:2]
    assert batches(number, shuffle=False) == cut(list(range(10)))
    assert batches(number) != batches(number + 1)


@pytest.mark.parametrize("number", [0, 5])
def test_a_weighted_pass_draws_each_example_by_its_share(number):
    weights = [0.0, 1.0, 0.0, 3.0, 0.5, 0.0]
    drawn = torch.rand(50, dtype=torch.float64, generator=generator(number)).numpy()
    expected = np.searchsorted(np.cumsum(weights), drawn * sum(weights), side="right").tolist()
    found = batches(number, num_examples=6, weights=weights, num_samples=50)
    assert found == cut(expected)
    many = batches(num_examples=6, weights=weights, num_samples=45_000)
    counts = Counter(chain.from_iterable(many))
    assert counts.keys() == {1, 3, 4}
    assert abs(counts[3] - 30_000) < 500 and abs(counts[4] - 5_000) < 300


def test_a_balanced_pass_draws_each_class_equally_often():
    labels = ["cat"] * 1 + ["dog"] * 9
    expected = batches(weights=[1.0] + [1 / 9] * 9, num_samples=4000)
    assert batches(balance=labels, num_samples=4000) == expected
    assert 1900 < Counter(chain.from_iterable(expected))[0] < 2100
    assert batches(balance=torch.tensor([0] + [1] * 9), num_samples=4000) == expected
    assert len(batches(balance=labels)) == 3


@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_by_length_are_sorted_within_windows_and_shuffled(drop_last):
    num = 2 * BATCHES_PER_WINDOW * 2 + 5  # two windows of batches of two, and a rest
    lengths = torch.randint(1, 99, (num,), generator=torch.Generator().manual_seed(1)).tolist()
    order = torch.randperm(num, generator=generator(2)).tolist()
    window = BATCHES_PER_WINDOW * 2
    by_hand = [
        pair
        for start in range(0, num, window)
        for pair in cut(sorted(order[start : start + window], key=lengths.__getitem__), 2)
    ]
    drawn = torch.randperm(num // 2, generator=generator(2, "batches")).tolist()
    expected = [by_hand[each] for each in drawn] + ([] if drop_last else [by_hand[-1]])
    options = {"num_examples": num, "batch_size": 2, "drop_last": drop_last}
    assert batches(2, lengths=lengths, **options) == expected
    padding = sum(max(lengths[a], lengths[b]) * 2 - lengths[a] - lengths[b]
                  for a, b in expected[: num // 2])  # fmt: skip
    assert padding < 0.1 * sum(lengths)


def test_batches_by_length_without_shuffling_keep_the_order_of_the_windows():
    lengths = [5, 1, 4, 2, 3, 1]
    found = batches(num_examples=6, batch_size=2, lengths=lengths, shuffle=False)
    assert found == [[1, 5], [3, 4], [2, 0]]


def test_a_function_gives_the_order_of_each_pass_by_its_number():
    asked = []

    def sampler(seed, number):
        asked.append((seed, number))
        return range(number, 10, 2)

    assert batches(1, sampler=sampler, batch_size=3) == [[1, 3, 5], [7, 9]]
    assert batches(1, sampler=sampler, batch_size=3, drop_last=True) == [[1, 3, 5]]
    assert asked[0] == (seed_of("3/train"), 1)


def test_a_function_gives_the_batches_of_each_pass():
    found = batches(2, batch_size=1, batch_sampler=lambda _, number: [[1], [2, 3], [number] * 3])
    assert found == [[1], [2, 3], [2, 2, 2]]


def test_a_sampler_of_torch_gives_the_order_of_each_pass():
    sampler = RandomSampler(range(10), num_samples=7)
    passes = [batches(number, sampler=sampler, batch_size=7) for number in (0, 1, 0)]
    assert [len(set(one)) for (one,) in passes] == [7, 7, 7]
    assert passes[0] == passes[2] != passes[1]
    assert batches(5, sampler=[3, 1, 2], batch_size=2) == [[3, 1], [2]]
    pairs = BatchSampler([4, 5, 6], 2, drop_last=False)
    assert batches(5, batch_sampler=pairs, batch_size=1) == [[4, 5], [6]]


WRONG = {
    "two orders": ({"weights": [1.0] * 10, "lengths": [1] * 10}, "got weights and lengths"),
    "an order without shuffling": ({"weights": [1.0] * 10, "shuffle": False}, "got shuffle False"),
    "too few weights": ({"weights": [1.0]}, "got 1 weights for 'train'; allowed: 10"),
    "too many labels": ({"balance": [1] * 11}, "got 11 balance"),
    "too many lengths": ({"lengths": [1] * 11}, "got 11 lengths"),
    "a negative weight": ({"weights": [-1.0] + [1.0] * 9}, "got weights from -1.0 to 1.0"),
    "no weight at all": ({"weights": [0.0] * 10}, "not all 0"),
    "weights of nan": ({"weights": [float("nan")] * 10}, "finite"),
    "samples of an order": ({"num_samples": 5}, "got num_samples 5"),
    "no samples": ({"num_samples": 0, "weights": [1.0] * 10}, "got num_samples 0"),
    "a sampler that has begun": ({"sampler": iter([1, 2])}, "got a list_iterator as the sampler"),
    "a number as a sampler": ({"sampler": 3}, "got a int as the sampler of 'train'; allowed: s"),
    "an index too far": ({"sampler": lambda *_: [3, 10]}, "got indices from 3 to 10"),
    "a negative index": ({"sampler": lambda *_: [3, -1]}, "got indices from -1 to 3"),
    "no index": ({"sampler": lambda *_: []}, "not empty"),
    "fractions": ({"sampler": lambda *_: [0.5]}, "got [0.5] from the sampler of 'train'"),
    "nothing": ({"sampler": lambda *_: None}, "got None from the sampler"),
    "an empty batch": ({"batch_sampler": lambda *_: [[1], []], "batch_size": 1}, "not empty"),
    "batches of batches": ({"batch_sampler": lambda *_: [[1]]}, "neither with batch_sampler"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_order_that_cannot_be_is_refused(wrong):
    choice, says = WRONG[wrong]
    with pytest.raises(InputError) as refused:
        batches(**choice)
    assert says in str(refused.value)


def test_a_pass_of_another_length_is_known_when_it_begins():
    run = Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={})
    data = TensorDataset(torch.arange(10))
    loader = run.loader(
        "train", data, batch_sampler=lambda _, number: [[each] for each in range(number + 1)]
    )
    assert [[each[0].tolist() for each in loader] for _ in range(3)] == [
        [[0]], [[0], [1]], [[0], [1], [2]],
    ]  # fmt: skip
    assert len(loader) == 1 and loader.source.length(2) == 3


@pytest.mark.slow
@pytest.mark.parametrize("choice", [{}, {"shuffle": False}, {"weights": torch.ones(MANY)}])
def test_a_pass_takes_about_8_bytes_of_memory_for_an_example(choice):
    """Also with as many batches: tensors of all batches took 600."""
    source = PassBatches(Choice(**choice).make("train", MANY, "3/train", 1, False), "3/train")
    process = psutil.Process()
    before = process.memory_info().rss
    for number in range(3):
        source.begin = number, 0
        assert len(next(iter(source))) == 1
    assert process.memory_info().rss - before < 12 * MANY
