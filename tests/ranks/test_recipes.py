"""Recipes of trainops that are loops of their own are trained by several ranks."""

import pytest
import torch
from torch.nn import functional

from tests.directories.test_recipes import SMALL
from tests.ranks.running import Attempts
from trainops.datasets import registering
from trainops.kinds.loop.recipes.large_table_loop import Numbers, Scaled
from trainops.learning.data import split
from trainops.learning.readers import ImageFolder, ParquetRows
from trainops.learning.tasks.layers import small_cnn
from trainops.process.protocol import Succeeded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
DATASET = "ds_0000000000000000"
SEED = 7  # of the attempts
BATCH_SIZE = {"image_folders": 2, "large_table": 3}  # rank 1 repeats a batch of the evaluation


def of_images(root, weights):
    """Return loss and accuracy of the images that are held out."""
    images = ImageFolder(root, size=(8, 8))
    _, held_out = split(len(images), SMALL["image_folders"][1]["validation_fraction"], SEED)
    assert -(-len(held_out) // BATCH_SIZE["image_folders"]) % 2 and len(held_out) > 4
    pixels, labels = zip(*(images[n] for n in held_out.tolist()), strict=True)
    model = small_cnn((3, 8, 8), len(images.classes), channels=2, hidden=8, dropout=0.1).eval()
    model.load_state_dict(weights)
    scores, targets = model(torch.stack(pixels).float() / 255), torch.tensor(labels)
    right = (scores.argmax(1) == targets).float().mean()
    return {
        "val_loss": functional.cross_entropy(scores, targets).item(), "val_accuracy": right.item(),
    }  # fmt: skip


def of_rows(root, weights):
    rows = Numbers(ParquetRows(root, ["a", "b", "y"]))
    table = rows.__getitems__(range(len(rows)))
    model = Scaled(table, 3)
    model.load_state_dict(weights)
    return {"val_loss": model(table[len(table) - round(len(table) * 0.3) :]).mean().item()}


EXPECTED = {"image_folders": of_images, "large_table": of_rows}


@pytest.mark.parametrize("recipe", EXPECTED)
def test_the_measures_are_those_of_the_examples_that_are_held_out(forkserver, tmp_path, recipe):
    fill, parameters = SMALL[recipe][0], dict(SMALL[recipe][1])
    (data := tmp_path / "data").mkdir()
    fill(data)
    location = registering.registered(data, "ds_0123456789abcdef", tmp_path)
    parameters |= {"directory": DATASET, "batch_size": BATCH_SIZE[recipe]}
    config = {"recipe": recipe, "parameters": parameters}
    attempts = Attempts(forkserver, tmp_path / "op", config, inputs={DATASET: location})
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    path = attempts.committed[-1].path / "model.pt"
    weights = torch.load(path, weights_only=True)  # noqa: TID251
    with torch.no_grad():
        expected = EXPECTED[recipe](data, weights)
    last = attempts.curve[max(attempts.curve)]
    assert {name: last[name] for name in expected} == pytest.approx(expected, rel=1e-5)
