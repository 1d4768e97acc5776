"""Losses that stay on a GPU until a point is due or a state is taken; simulated on the CPU."""

import math
import re

import pytest
import torch

from tests.engines.contract import Case, ScriptedSupervisor, attempt
from trainops.kind import KINDS
from trainops.kinds.loop import means as means_module
from trainops.kinds.loop.means import Means
from trainops.recipes import Recipe
from trainops.runtime.checkpoint.snapshot import all_finite
from trainops.runtime.errors import NonFiniteLoss
from trainops.runtime.job import closed_after
from trainops.runtime.loop import Failed, Succeeded

NUM_GOOD = 3  # steps; the loss of the next is not a number


@pytest.fixture
def _on_a_gpu(monkeypatch):
    """Have tensors wait as those of a GPU do."""
    monkeypatch.setattr(means_module, "_is_on_cpu", lambda tensor: False)


@pytest.fixture
def _spoiled(monkeypatch):
    """Have the weights of every recipe become NaN after some steps."""
    builder_of = Recipe.builder

    def builder(recipe):
        original = builder_of(recipe)

        def train(run, parameters):
            for number, metrics in enumerate(original(run, parameters), start=1):
                if number == NUM_GOOD:
                    for module in run.modules.values():
                        for parameter in module.parameters():
                            parameter.data.fill_(math.nan)
                yield metrics

        return train

    monkeypatch.setattr(Recipe, "builder", builder)


@pytest.mark.usefixtures("_on_a_gpu")
def test_a_loss_that_is_read_with_a_point_is_of_one_of_its_steps():
    means = Means(every_steps=3)
    for step, loss in enumerate((0.5, 0.5, math.nan), start=1):
        means.add(step, {"loss": torch.tensor(loss)})
    with pytest.raises(NonFiniteLoss, match="the loss became nan in one of the 3 steps up to 4"):
        means.add(4, {"loss": torch.tensor(0.5)})


@pytest.mark.usefixtures("_on_a_gpu")
def test_a_loss_that_is_read_with_a_state_is_of_the_steps_since_the_look_before():
    means = Means(every_steps=100)
    for step in range(1, 5):
        means.add(step, {"loss": torch.tensor(0.5), "val_accuracy": torch.tensor(math.nan)})
    means.look(4)
    assert means.state_dict()["loss"] == {"total": 1.5, "count": 3, "logged_at": 1}
    means.add(5, {"loss": torch.tensor(0.5)})
    means.add(6, {"loss": torch.tensor(math.inf)})
    with pytest.raises(NonFiniteLoss, match="the loss became inf in one of the 2 steps up to 6"):
        means.look(6)


def test_a_loss_that_is_read_at_once_is_of_its_step():
    means = Means(every_steps=3)
    means.add(1, {"loss": 0.5})
    with pytest.raises(NonFiniteLoss, match="the loss became nan in step 2"):
        means.add(2, {"loss": math.nan})


def loses_itself(run, parameters):
    for step in run.steps("step", 90):
        yield {"train_loss": torch.tensor(math.nan if step == 14 else 1.0)}


SCRIPT = Case("loop", "script", {"recipe": "digits_loop", "log_every_steps": 100}, ())
FORMS = {
    "pair": {"epochs": 2},
    "lit": {"max_epochs": 2},
    "hugging": {},
}


@pytest.mark.usefixtures("_on_a_gpu")
@pytest.mark.parametrize("stop", [None, 17])
def test_no_checkpoint_is_later_than_a_loss_that_is_not_finite(tmp_path, monkeypatch, stop):
    monkeypatch.setattr(Recipe, "builder", lambda _: loses_itself)
    supervisor = ScriptedSupervisor(at=stop)
    outcome = attempt(SCRIPT, tmp_path, supervisor, every_steps=10)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, NonFiniteLoss)
    assert re.search(
        r"train_loss became nan in .*\(up to step \d+ of 90; log_every_steps: 1 finds the step\)"
        r"|train_loss became nan in step 15 \(step 15 of 90\)",
        str(outcome.error),
    )
    assert 15 <= outcome.error.step <= 20
    steps = [each.step for each in supervisor.checkpoints]
    assert 10 in steps and max(steps) < 15


@pytest.mark.usefixtures("_on_a_gpu")
def test_a_look_does_not_change_the_points(tmp_path, monkeypatch):
    def train(run, parameters):
        for step in run.steps("step", 40):
            yield {"train_loss": torch.tensor(0.1 * step, dtype=torch.float64)}

    monkeypatch.setattr(Recipe, "builder", lambda _: train)
    seldom, often = ScriptedSupervisor(), ScriptedSupervisor()
    for each, every in ((seldom, 40), (often, 1)):
        outcome = attempt(SCRIPT, tmp_path / str(every), each, every_steps=every)
        assert isinstance(outcome, Succeeded)
    assert seldom.curve == often.curve


@pytest.mark.usefixtures("_on_a_gpu")
def test_each_rank_looks_before_its_state_is_taken(monkeypatch):
    monkeypatch.setattr(Recipe, "builder", lambda _: loses_itself)
    config = KINDS["loop"].parse_config({**SCRIPT.config, "seed": 7})
    with closed_after(KINDS["loop"].make_job(config, {}, None)) as job:
        for _ in range(15):
            job.advance()
        with pytest.raises(NonFiniteLoss, match="one of the 14 steps up to 15"):
            job.rank_state_dict()


def test_a_state_that_was_saved_after_such_a_loss_is_refused(monkeypatch):
    monkeypatch.setattr(Recipe, "builder", lambda _: loses_itself)
    config = KINDS["loop"].parse_config({**SCRIPT.config, "seed": 7})
    with closed_after(KINDS["loop"].make_job(config, {}, None)) as job:
        for _ in range(14):
            job.advance()
        state = job.state_dict()
    state["state"]["means"]["train_loss"]["total"] = math.nan  # as earlier versions saved it
    with (
        closed_after(KINDS["loop"].make_job(config, {}, None)) as job,
        pytest.raises(NonFiniteLoss, match="resume from an earlier one"),
    ):
        job.load_state_dict(state)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning's CombinedLoader
@pytest.mark.usefixtures("_on_a_gpu", "_spoiled")
@pytest.mark.parametrize("recipe", FORMS)
def test_no_form_saves_weights_that_are_not_finite(tmp_path, recipe):
    pytest.importorskip({"lit": "lightning", "hugging": "transformers"}.get(recipe, "torch"))
    config = {"recipe": recipe, "parameters": FORMS[recipe], "log_every_steps": 100, "threads": 1}
    supervisor = ScriptedSupervisor()
    outcome = attempt(Case("loop", recipe, config, ()), tmp_path, supervisor, every_steps=2)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, NonFiniteLoss)
    assert outcome.error.step == NUM_GOOD + 1
    assert [each.step for each in supervisor.checkpoints][-1] < NUM_GOOD


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning's CombinedLoader
@pytest.mark.parametrize("place", ["cpu", "gpu"])
def test_losses_within_a_window_of_lightning_are_looked_at(tmp_path, monkeypatch, request, place):
    """Lightning's value of a step is the loss of the last batch of its window."""
    pytest.importorskip("lightning")
    if place == "gpu":
        request.getfixturevalue("_on_a_gpu")
    from tests.loop.lit_module import Automatic

    training_step = Automatic.training_step

    def spoiled(module, batch, index):
        factor = math.nan if (module.current_epoch, index) == (1, 3) else 1.0
        return training_step(module, batch, index) * factor

    monkeypatch.setattr(Automatic, "training_step", spoiled)
    parameters = {"max_epochs": 2, "accumulate_grad_batches": 3}
    config = {"recipe": "lit", "parameters": parameters, "log_every_steps": 100, "threads": 1}
    supervisor = ScriptedSupervisor()
    outcome = attempt(Case("loop", "lit", config, ()), tmp_path, supervisor, every_steps=1)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, NonFiniteLoss)
    assert "train_loss became nan" in str(outcome.error)
    assert supervisor.checkpoints[-1].step == outcome.error.step - 1
    last = supervisor.checkpoints[-1].path / "model.pt"
    assert all_finite(torch.load(last, weights_only=True))  # noqa: TID251
