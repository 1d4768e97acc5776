"""The number of examples of batches of any structure."""

from collections import namedtuple

import pytest
import torch
from torch.utils.data import IterableDataset

from tests.loop.test_throughput import new_run
from trainops.kinds.loop.module.batch import count_examples


def image(height, width=5):
    return torch.zeros(3, height, width)


def target(number):
    return {"boxes": torch.zeros(number, 4), "labels": torch.zeros(number)}


Pair = namedtuple("Pair", "x y")
IMAGES, TARGETS = [image(4), image(6)], [target(1), target(3)]
BATCHES = {
    "a tensor": (torch.zeros(7, 2), 7),
    "a pair": ((torch.zeros(7, 2), torch.zeros(7)), 7),
    "a named tuple": (Pair(torch.zeros(7, 2), torch.zeros(7)), 7),
    "a dict": ({"x": torch.zeros(7, 2), "text": ["a"] * 7}, 7),
    "weights of classes": ((torch.zeros(7, 2), torch.zeros(10)), 7),
    "nested fields": ([[torch.zeros(7, 2), torch.zeros(7, 3)], [torch.zeros(7)] * 2], 7),
    "two views of equal length": ([image(4), image(6)], 3),
    "images and targets": ((IMAGES, TARGETS), 2),
    "tuples of them": (tuple(zip(*zip(IMAGES, TARGETS, strict=True), strict=True)), 2),
    "one image with as many boxes as channels": (([image(4)], [target(3)]), 1),
    "a dict of lists": ({"images": IMAGES, "targets": TARGETS}, 2),
    "images and stacked labels": ((IMAGES, torch.zeros(2)), 2),
    "images and masks": ((IMAGES, [torch.zeros(4, 5), torch.zeros(6, 5)]), 2),
    "examples as they are": (list(zip(IMAGES, TARGETS, strict=True)), 2),
    "one example as it is": ([(image(4), target(2))], 1),
    "images, targets and names": ((IMAGES, TARGETS, ["a", "b"]), 2),
    "two loaders": (([torch.zeros(8, 2), torch.zeros(8)], [torch.zeros(4, 2), torch.zeros(4)]), 8),
    "two loaders of inputs": (([torch.zeros(8, 2)], [torch.zeros(4, 2)]), 8),
    "fields with a dict": (([torch.zeros(8, 2), {"y": torch.zeros(8)}], [torch.zeros(4), {}]), 8),
    "texts and labels": ((["a", "b"], torch.zeros(2)), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_examples_of_a_batch_are_counted(name):
    batch, number = BATCHES[name]
    assert count_examples(batch) == number


class Detections(IterableDataset):
    def __iter__(self):
        yield from zip(IMAGES * 2, TARGETS * 2, strict=True)


def test_a_stream_counts_images_of_different_sizes():
    run = new_run()
    for _ in run.loader("train", Detections(), batch_size=2, collate_fn=lambda each: each):
        pass
    assert run.throughput.num_samples == 4
