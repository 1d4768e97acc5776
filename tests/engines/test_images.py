"""The recipes for images: what was uploaded is what is trained on, and that it is learned."""

import numpy as np
import pytest
import torch

from apps.datasets.tables.normalise import normalise
from apps.datasets.tables.options import TableLimits, TableOptions
from tests.engines.contract import DATASET
from trainops.kind import KINDS
from trainops.learning.ingredients import Context
from trainops.learning.tasks.digits_model import SHAPE, small_cnn
from trainops.learning.tasks.image_table import (
    measure,
    read_pictures,
    require_classes,
    standardised,
)
from trainops.learning.tasks.unet import UNet
from trainops.recipes import recipes
from trainops.runtime import reproducibility
from trainops.runtime.errors import ConfigError, InputError


@pytest.fixture
def uploaded(tmp_path):
    """Normalise arrays as an upload is; return what jobs are given, and the columns."""

    def uploaded(**arrays):
        source, target = tmp_path / "set.npz", tmp_path / "set.parquet"
        np.savez(source, **arrays)
        found = normalise(source, target, TableOptions(), TableLimits())
        return {DATASET: target}, {DATASET: found["columns"]}

    return uploaded


def shapes(count=120, size=10, dtype=np.uint8):
    """Return images with a bright square on the left or on the right, and where it is."""
    drawing = np.random.default_rng(1)
    images = drawing.integers(0, 60, (count, size, size)).astype(dtype)
    masks = np.zeros((count, size, size), bool)
    sides = drawing.integers(0, 2, count)
    for number, side in enumerate(sides):
        row = drawing.integers(0, size - 4)
        masks[number, row : row + 4, 1 + side * 5 : 4 + side * 5] = True
    images[masks] += 120
    names = np.array(["left", "right"])[sides]
    return {"images": images, "masks": masks, "labels": names, "client": np.arange(count) % 3}


def run_through(kind, config, inputs):
    reproducibility.seed_all(3)
    engine = KINDS[kind]
    job = engine.make_job(engine.parse_config({"seed": 3, "threads": 1, **config}), inputs)
    while job.step < job.total_steps:
        job.advance()
    return job.result()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_what_was_uploaded_is_what_is_read(uploaded, dtype):
    arrays = shapes(dtype=dtype)
    colours = np.stack([arrays["images"], 2 * arrays["images"], arrays["images"]], axis=3)
    inputs, _ = uploaded(**{**arrays, "images": colours})
    pictures = read_pictures(DATASET, Context(0, inputs), "label")
    assert torch.equal(pictures.images, torch.tensor(colours.astype("f4")).permute(0, 3, 1, 2))
    assert torch.equal(pictures.masks[:, 0], torch.tensor(arrays["masks"].astype("f4")))
    labels = pictures.groups["label"]
    assert [labels.names[owner] for owner in labels.owners] == arrays["labels"].tolist()
    assert pictures.groups["client"].names == ("0", "1", "2")


def test_classes_are_in_the_order_of_their_numbers(uploaded):
    labels = np.array([10, 9, -1] * 40)
    inputs, _ = uploaded(images=shapes()["images"], labels=labels)
    assert read_pictures(DATASET, Context(0, inputs), "label").groups["label"].names == (
        "-1", "9", "10",
    )  # fmt: skip


def test_brightness_is_measured_by_channel_and_taken_away():
    images = torch.randn(300, 2, 8, 8) * torch.tensor([5.0, 0.0]).view(1, 2, 1, 1) + 1000
    constants = measure(images)
    assert constants["deviation"][1] == 1.0, "a channel that is the same everywhere"
    exact = images[:, 0].double()
    assert constants["mean"][0] == pytest.approx(exact.mean().item(), rel=1e-12)
    assert constants["deviation"][0] == pytest.approx(exact.std(correction=0).item(), rel=1e-9)
    left = standardised(images, constants)
    assert left[:, 0].mean().abs() < 1e-3 and abs(left[:, 0].std() - 1) < 1e-3


@pytest.mark.slow
def test_images_are_distinguished(uploaded):
    inputs, _ = uploaded(**shapes())
    config = {**recipes()["images"].example, "parameters": {"dataset": DATASET, "channels": 4}}
    result = run_through("training", {**config, "epochs": 12, "batch_size": 16}, inputs)
    assert result["final"]["val_accuracy"] > 0.9
    assert result["details"] == {"classes": ["left", "right"], "shape": [10, 10, 1], "images": 120}


@pytest.mark.slow
@pytest.mark.parametrize("is_uploaded", [True, False])
def test_what_is_marked_is_outlined(uploaded, is_uploaded):
    inputs, _ = uploaded(**shapes())
    parameters = {"dataset": DATASET} if is_uploaded else {"images": 160, "size": 16, "noise": 0.05}
    config = {**recipes()["segmentation"].example, "parameters": {**parameters, "channels": 4}}
    config = {**config, "epochs": 10, "batch_size": 8}
    result = run_through("training", config, inputs if is_uploaded else {})
    assert result["final"]["val_dice"] > (0.9 if is_uploaded else 0.7)


@pytest.mark.slow
def test_clients_tell_images_apart_together(uploaded):
    inputs, _ = uploaded(**shapes())
    config = {
        **recipes()["federated_images"].example, "parameters": {"dataset": DATASET, "channels": 4},
        "partition": {"by": "column", "column": "client"}, "rounds": 8, "local_epochs": 2,
        "batched_clients": True, "batch_size": 8, "optimizer": "adam", "learning_rate": 0.01,
    }  # fmt: skip
    result = run_through("federated", config, inputs)
    assert result["clients"] == 3 and result["final"]["val_accuracy"] > 0.9


@pytest.mark.slow
def test_clients_outline_together(uploaded):
    inputs, _ = uploaded(**shapes())
    config = {
        **recipes()["federated_segmentation"].example, "rounds": 5,
        "parameters": {"dataset": DATASET, "channels": 4},
        "partition": {"by": "column", "column": "label"},
    }  # fmt: skip
    result = run_through("federated", config, inputs)
    assert result["clients"] == 2 and result["final"]["val_dice"] > 0.8


@pytest.mark.parametrize("network", [lambda: UNet(3, 4, "group"), lambda: UNet(3, 2, "none")])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 14), (15, 11)])
def test_the_network_outlines_images_of_any_size(network, height, width):
    assert network()(torch.rand(2, 3, height, width)).shape == (2, 1, height, width)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 28, 28), (2, 9, 100), (4, 65, 8)])
def test_the_small_network_reads_images_of_any_size(shape):
    network = small_cnn(shape, 5, channels=2, hidden=4, dropout=0.1, norm_name="group")
    assert network(torch.rand(2, *shape)).shape == (2, 5)


def test_the_network_of_the_digits_is_as_it_was():
    names = [type(each).__name__ for each in small_cnn(SHAPE, 10, channels=4, hidden=8, dropout=0)]
    assert names == ["Conv2d", "ReLU", "Conv2d", "ReLU", "MaxPool2d", "Flatten", "Dropout",
                     "Linear", "ReLU", "Dropout", "Linear"]  # fmt: skip


LACKING = [
    ("training", "images", {"masks"}, "it has no labels, only mask"),
    ("training", "segmentation", {"labels"}, "no masks, only label"),
    ("federated", "federated_images", {"masks"}, "no labels"),
    ("federated", "federated_segmentation", {"labels"}, "no masks"),
]


@pytest.mark.parametrize(("kind", "recipe", "kept", "said"), LACKING, ids=str)
def test_what_a_dataset_lacks_is_reported_before_the_run_and_in_it(
    uploaded, kind, recipe, kept, said
):
    inputs, columns = uploaded(**{k: v for k, v in shapes().items() if k in {"images", *kept}})
    engine = KINDS[kind]
    config = engine.parse_config({"recipe": recipe, "parameters": {"dataset": DATASET}})
    assert engine.dataset_ids(config) == [DATASET]
    assert said in config.check_columns(columns)["parameters.dataset"]
    with pytest.raises(InputError, match=r"has no (labels|masks)"):
        engine.make_job(config, inputs)


@pytest.mark.parametrize("recipe", ["images", "segmentation"])
def test_a_table_is_no_set_of_images(recipe, tmp_path):
    source, target = tmp_path / "t.csv", tmp_path / "t.parquet"
    source.write_text("label,mask\n1,2\n3,4\n")
    columns = normalise(source, target, TableOptions(), TableLimits())["columns"]
    engine = KINDS["training"]
    config = engine.parse_config({"recipe": recipe, "parameters": {"dataset": DATASET}})
    assert "a table; allowed" in config.check_columns({DATASET: columns})["parameters.dataset"]
    with pytest.raises(InputError, match="is a table"):
        engine.make_job(config, {DATASET: target})


def test_images_are_no_table(uploaded):
    _, columns = uploaded(**shapes())
    parameters = {"dataset": DATASET, "target": "label"}
    config = KINDS["training"].parse_config({"recipe": "tabular", "parameters": parameters})
    assert "contains images" in config.check_columns(columns)["parameters.dataset"]


@pytest.mark.parametrize("labels", [np.zeros(120, int), np.arange(120)])
def test_labels_that_are_no_classes_are_refused(uploaded, labels, monkeypatch):
    monkeypatch.setattr("trainops.learning.tasks.image_table.MAX_CLASSES", 100)
    inputs, _ = uploaded(images=shapes()["images"], labels=labels)
    pictures = read_pictures(DATASET, Context(0, inputs), "label")
    with pytest.raises(InputError, match=r"(1|120) different values; allowed: 2 to 100"):
        require_classes(pictures.groups["label"])


def test_a_dataset_that_is_no_id_is_refused():
    with pytest.raises(ConfigError) as found:
        KINDS["training"].parse_config({"recipe": "segmentation", "parameters": {"dataset": "x"}})
    assert "parameters.dataset" in found.value.errors


def test_nothing_is_read_of_what_was_not_uploaded():
    with pytest.raises(InputError, match="was not given"):
        read_pictures(DATASET, Context(0, {}), "label")
