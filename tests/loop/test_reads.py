"""A resume in the middle of a pass reads nothing before its position: the examples are counted."""

import hashlib
import os
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from trainops.kinds.loop.ingredients import ingredients_loop
from trainops.kinds.loop.settings import IngredientsParameters
from trainops.learning.ingredients import DatasetIngredients

NUM, BATCH, EPOCHS = 40, 4, 2
NUM_BATCHES = NUM // BATCH
WORKERS = [0, pytest.param(2, marks=pytest.mark.slow)]


class Counted(Dataset):
    """Notes each reading in a file, from any process."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return NUM

    def __getitem__(self, index):
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, b"%d " % index)
        os.close(descriptor)
        return torch.full((3,), float(index)), torch.tensor(index % 2)


def order_of(number):
    """Return the order of a pass by docs/loaders.md, written down here once more."""
    text = f"7/train/pass {number}/order"
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % 2**63
    return torch.randperm(NUM, generator=torch.Generator().manual_seed(seed)).tolist()


def looped(path, num_workers):
    """Return a loop over a loader of its own."""

    def train(run, _):
        run.keep("sums", {"seen": 0.0})
        batches = run.loader("train", Counted(path), batch_size=BATCH, num_workers=num_workers)
        for _ in run.epochs(EPOCHS):
            for inputs, _ in batches:
                yield {"loss": inputs.sum()}

    return train


def of_a_module(path, num_workers):
    """Return the loop of a training module, without a validation."""
    settings = {"batch_size": BATCH, "epochs": EPOCHS, "num_workers": num_workers}
    made = ingredients_loop(
        lambda *_: DatasetIngredients(
            model=nn.Linear(3, 2), train=Counted(path), validation=None,
            loss=functional.cross_entropy,
        )
    )  # fmt: skip

    def train(run, _):
        yield from made(run, IngredientsParameters.parse(settings))

    return train


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("form", [looped, of_a_module])
@pytest.mark.parametrize("at", [NUM_BATCHES - 3, NUM_BATCHES + 7])
def test_a_resume_reads_only_the_examples_after_its_position(
    follow, tmp_path, form, num_workers, at
):
    first, second = tmp_path / "first", tmp_path / "second"
    stopped = follow(form(first, num_workers), at=at)
    resumed = follow(form(second, num_workers), resume=stopped.checkpoints, number=2)
    assert resumed.receipts[0].exact and resumed.progress[-1].step == EPOCHS * NUM_BATCHES
    expected = [index for number in range(EPOCHS) for index in order_of(number)]
    read = [[int(each) for each in path.read_text().split()] for path in (first, second)]
    if num_workers:  # they read ahead, and beside each other
        assert Counter(read[1]) == Counter(expected[at * BATCH :])
        assert not Counter(expected[: at * BATCH]) - Counter(read[0])
    else:
        assert read == [expected[: at * BATCH], expected[at * BATCH :]]
