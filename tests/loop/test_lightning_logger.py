"""What a LightningModule gives to `self.logger` is shown by the operation, also after stops."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from trainops.runtime.loop import Failed

pytestmark = pytest.mark.slow
lightning = pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
CONFIG = {
    "recipe": "lit", "parameters": {"max_epochs": 2}, "log_every_steps": 1, "threads": 1,
    "device": "cpu",
}  # fmt: skip
CASE = Case("loop", "logger", CONFIG, ())
PIXELS = torch.linspace(-0.5, 1.5, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5)


@pytest.fixture
def logging(monkeypatch):
    """Return a function that has the module log by a hook."""
    from tests.loop.lit_module import Automatic, Data
    from trainops.kinds.loop.lightning import lightning_loop

    def use(**hooks):
        module_type = type("Logging", (Automatic,), hooks)
        made = lightning_loop(lambda *_: (module_type(), Data()))
        monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: made)

    return use


def log_everything(module, outputs, batch, batch_idx):
    step, writer = module.global_step, module.logger.experiment
    module.logger.log_hyperparams({"rate": 0.1}, {"hp/loss": 0})
    module.logger.log_metrics({"by/logger": step / 3}, step=1000)
    writer.add_scalar("by/writer", step / 7, step)
    writer.add_scalars("losses", {"one": step, "two": -step}, global_step=step)
    if step % 5 == 0:
        writer.add_image("first", PIXELS[0], step)
        writer.add_image("mask", PIXELS[0, 0].numpy(), dataformats="HW")
        writer.add_images("all", PIXELS.permute(1, 2, 0, 3), dataformats="CHNW")
        writer.add_histogram("weights", module.net[0].weight, step, bins="auto")
        writer.add_audio("clip", PIXELS.reshape(1, -1).clip(-1, 1), step, sample_rate=8000)
        writer.add_text("words", "a **word**", step)
        writer.flush()


def pixels(item):
    return np.asarray(Image.open(io.BytesIO(item.content)))


def as_png(tensor):
    return np.rint(tensor.clip(0, 1).numpy().astype(np.float64) * 255).astype(np.uint8)


def test_numbers_and_media_are_those_of_the_step(tmp_path, logging):
    logging(on_train_batch_end=log_everything)
    done = undisturbed(CASE, tmp_path)
    steps = {each.metrics["by/writer"]: each for each in done.progress if each.media}
    assert sorted(steps) == [5 / 7, 10 / 7]
    found = steps[5 / 7]
    assert found.metrics["by/logger"] == 5 / 3
    assert (found.metrics["losses/one"], found.metrics["losses/two"]) == (5, -5)
    items = {(each.name, each.index): each for each in found.media}
    expected = as_png(PIXELS[0].permute(1, 2, 0))
    assert np.array_equal(pixels(items["first", 0]), expected)
    assert np.array_equal(pixels(items["mask", 0]), as_png(PIXELS[0, 0]))
    assert np.array_equal(pixels(items["all", 0]), expected)
    assert np.array_equal(pixels(items["all", 1]), as_png(PIXELS[1].permute(1, 2, 0)))
    assert sum(json.loads(items["weights", 0].content)["counts"]) == 16
    assert items["clip", 0].type == "audio"
    assert json.loads(items["words", 0].content)["rows"] == [["a **word**"]]


def test_stops_and_deaths_change_no_point(tmp_path, logging):
    logging(on_train_batch_end=log_everything)
    expected = undisturbed(CASE, tmp_path)
    assert all("by/writer" in expected.curve[step] for step in (1, 4))
    require_stop_changes_nothing(CASE, tmp_path / "stops", expected, [1, 4, 9])
    require_death_changes_nothing(CASE, tmp_path / "death", expected, 8, 2)


def before_the_first_step(module):
    module.logger.log_metrics({"rate": 1})


def by_wandb(module):
    module.logger.experiment.log({"loss": 1})


def flat(module):
    module.logger.experiment.add_image("flat", torch.zeros(9))


@pytest.mark.parametrize(
    ("hook", "method", "says"),
    [
        ("on_train_start", before_the_first_step, "before the first step; allowed: in steps"),
        ("on_train_epoch_end", by_wandb, "experiment.log, which trainops does not provide"),
        ("on_train_epoch_end", flat, "got dataformats CHW for an image of 1 axes; allowed"),
    ],
)
def test_what_cannot_be_logged_is_refused_with_what_can(tmp_path, logging, hook, method, says):
    logging(**{hook: method})
    outcome = attempt(CASE, tmp_path, ScriptedSupervisor())
    assert isinstance(outcome, Failed) and says in str(outcome.error), outcome
