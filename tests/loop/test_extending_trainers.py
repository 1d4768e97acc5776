"""Extended trainings by Lightning and by transformers end as those that were as long at once."""

import pytest
import torch

from tests.engines.contract import Case, ScriptedSupervisor, attempt, undisturbed
from tests.loop.test_extending import all_but_state, forked
from trainops.kind import KINDS
from trainops.runtime import reproducibility
from trainops.runtime.loop import Succeeded

pytestmark = pytest.mark.slow


def lit(epochs, **parameters):
    config = {"recipe": "lit", "parameters": {"max_epochs": epochs, **parameters}, "threads": 1}
    return Case("loop", f"lit-{epochs}", config, ())


def hugging(epochs, schedule, max_steps=-1, callbacks=(), **arguments):
    given = {"num_train_epochs": epochs, "lr_scheduler_type": schedule, **arguments}
    parameters = {"arguments": given, "max_steps": max_steps, "callbacks": list(callbacks)}
    config = {"recipe": "hugging", "parameters": parameters, "log_every_steps": 1}
    name = f"hugging-{epochs}-{max_steps}"
    return Case("loop", name, {**config, "threads": 1, "monitor": "eval_loss"}, ())


@pytest.fixture(autouse=True)
def _as_a_process_of_its_own():
    reproducibility.set_determinism(deterministic=True, threads=1)


def rates(heard):
    name = "learning_rate"
    return [each.metrics[name] for each in heard.progress if name in each.metrics]


def extended(short, longer, root):
    """Return the reports of a longer run, and of one that extends a shorter run."""
    finished = undisturbed(short, root / "short").checkpoints[-1]
    begun = forked(finished, short, longer, root / "fork")
    heard = ScriptedSupervisor()
    outcome = attempt(longer, root / "fork", heard, resume=[begun])
    assert isinstance(outcome, Succeeded), outcome
    return undisturbed(longer, root / "longer"), heard


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"module": "manual"},
        {"scheduler": "plateau", "accumulate_grad_batches": 4},
        {"iterable": "stateful"},
    ],
    ids=["automatic", "manual", "plateau", "iterable"],
)
def test_an_extended_lightning_module_has_the_files_of_a_longer_training(tmp_path, given):
    pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
    expected, found = extended(lit(2, **given), lit(4, **given), tmp_path)
    assert all_but_state(found.checkpoints[-1]) == all_but_state(expected.checkpoints[-1])
    assert found.progress[-1].step == expected.progress[-1].step


@pytest.mark.parametrize("given", [{}, {"module": "manual"}, {"iterable": "stateful"}])
def test_a_lightning_module_with_a_number_of_steps_continues_within_its_epoch(tmp_path, given):
    pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
    cases = (lit(1, max_steps=each, **given) for each in (4, 14))
    expected, found = extended(*cases, tmp_path)
    files, wanted = (all_but_state(each.checkpoints[-1]) for each in (found, expected))
    assert files | {"logged.pt": ""} == wanted | {"logged.pt": ""}  # its names have another order
    logged = [each.checkpoints[-1].path / "logged.pt" for each in (found, expected)]
    first, second = (torch.load(each, weights_only=True) for each in logged)  # noqa: TID251
    assert first == second


def test_an_extended_lightning_module_that_was_stopped_stays_stopped(tmp_path, monkeypatch):
    pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
    from tests.loop.lit_module import Automatic

    def stop(module):
        module.outputs.clear()
        module.trainer.should_stop = module.current_epoch == 1

    monkeypatch.setattr(Automatic, "on_validation_epoch_end", stop)
    expected, found = extended(lit(3), lit(5), tmp_path)
    assert all_but_state(found.checkpoints[-1]) == all_but_state(expected.checkpoints[-1])


def test_an_extended_trainer_of_transformers_has_the_files_of_a_longer_training(tmp_path):
    pytest.importorskip("transformers", reason="the extra transformers is not installed")
    windows = {"gradient_accumulation_steps": 4}  # the last one of an epoch has fewer batches
    expected, found = extended(*(hugging(each, "constant", **windows) for each in (1, 3)), tmp_path)
    assert all_but_state(found.checkpoints[-1]) == all_but_state(expected.checkpoints[-1])


def test_a_trainer_that_has_begun_does_not_evaluate_on_start(tmp_path):
    pytest.importorskip("transformers", reason="the extra transformers is not installed")
    cases = hugging(1, "constant"), hugging(3, "constant", eval_on_start=True)
    expected, found = extended(*cases, tmp_path)
    files, wanted = (all_but_state(each.checkpoints[-1]) for each in (found, expected))
    assert files.pop("best_model.pt") != wanted.pop("best_model.pt")  # that of the start
    assert files == wanted


@pytest.mark.parametrize("iterable", ["plain", "stateful"])
def test_an_extended_trainer_continues_within_an_iterable_dataset(tmp_path, iterable):
    pytest.importorskip("transformers", reason="the extra transformers is not installed")
    cases = [hugging(1, "constant", steps, eval_strategy="no") for steps in (4, 9)]
    for each in cases:
        each.config["parameters"]["iterable"] = iterable
    expected, found = extended(*cases, tmp_path)
    assert all_but_state(found.checkpoints[-1]) == all_but_state(expected.checkpoints[-1])


@pytest.mark.parametrize("steps", [4, 6])
def test_a_stopped_trainer_of_transformers_stays_stopped(tmp_path, steps):
    """Its callback stops it after four steps, within the first epoch of six."""
    pytest.importorskip("transformers", reason="the extra transformers is not installed")
    short, longer = (
        hugging(9, "constant", max_steps=each, callbacks=["stopper"]) for each in (steps, 14)
    )
    expected, found = undisturbed(longer, tmp_path / "longer"), ScriptedSupervisor()
    finished = undisturbed(short, tmp_path / "short").checkpoints[-1]
    begun = forked(finished, short, longer, tmp_path / "fork")
    outcome = attempt(longer, tmp_path / "fork", found, resume=[begun])
    assert isinstance(outcome, Succeeded), outcome
    steps_of = [each.checkpoints[-1].state["global_step"] for each in (expected, found)]
    assert (steps_of[1] > steps_of[0]) == (steps == 4)  # one that came to its end continues


def test_a_trainer_that_loads_its_best_weights_continues_from_the_last_ones(tmp_path):
    pytest.importorskip("transformers", reason="the extra transformers is not installed")
    best = {"load_best_model_at_end": True, "save_strategy": "epoch", "learning_rate": 0.3}
    expected, found = extended(*(hugging(each, "constant", **best) for each in (3, 5)), tmp_path)
    files, wanted = (all_but_state(each.checkpoints[-1]) for each in (found, expected))
    for each in (files, wanted):
        del each["callbacks.pt"]  # the shorter training has logged its end, too
    assert files == wanted
    path = found.checkpoints[-1].path / "best_weights.pt"
    kept = torch.load(path, weights_only=True)  # noqa: TID251
    assert not all(torch.equal(each, kept["last"][name]) for name, each in kept["best"].items())


@pytest.mark.parametrize("steps", [4, 6])
def test_a_trainer_with_more_max_steps_has_the_files_of_a_longer_training(tmp_path, steps):
    """Six steps are an epoch: the shorter training ends within one, or with it."""
    pytest.importorskip("transformers", reason="the extra transformers is not installed")
    short, longer = (hugging(9, "constant", max_steps=each) for each in (steps, 14))
    expected, found = extended(short, longer, tmp_path)
    files, wanted = (all_but_state(each.checkpoints[-1]) for each in (found, expected))
    if steps == 4:  # the shorter training was evaluated within the epoch, and may be the best
        del files["best_model.pt"], wanted["best_model.pt"]
    assert files == wanted


def test_an_extended_linear_schedule_has_the_rates_of_the_longer_training(tmp_path):
    """As the preview says; the weights are not those of the longer training."""
    pytest.importorskip("transformers", reason="the extra transformers is not installed")
    expected, found = extended(hugging(1, "linear"), hugging(3, "linear"), tmp_path)
    assert rates(found)[0] == 0.0  # the end of the shorter schedule
    assert rates(found)[1:] == rates(expected)[-len(rates(found)) + 1 :]
    assert found.checkpoints[-1].step == expected.checkpoints[-1].step
    assert all_but_state(found.checkpoints[-1]) != all_but_state(expected.checkpoints[-1])


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"epochs": 3}, ("parameters.epochs", 3)),
        ({"max_epochs": 4, "max_steps": 9}, ("parameters.max_epochs", 4)),
        ({"num_train_epochs": 2, "max_steps": -1}, ("parameters.num_train_epochs", 2)),
        ({"num_train_epochs": 2, "max_steps": 9}, ("parameters.max_steps", 9)),
        ({"rounds": 2}, None),
    ],
)
def test_the_length_of_a_loop_has_the_name_of_its_trainer(parameters, expected):
    assert KINDS["loop"].length_of({"parameters": parameters}) == expected


def test_a_preview_says_what_becomes_of_a_schedule():
    pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
    kind = KINDS["loop"]
    before, after = (kind.parse_config(lit(epochs).config) for epochs in (2, 4))
    after.require_forkable(before)
    sentences = " ".join(after.continues(before))
    assert "a loop submitted with parameters.max_epochs 4, unless its learning-rate" in sentences
    assert "OneCycleLR ends with an error" in sentences


def test_a_preview_of_more_max_steps_says_what_becomes_of_a_schedule():
    kind = KINDS["loop"]
    before, after = (
        kind.parse_config(hugging(1, "linear", max_steps=each).config) for each in (4, 9)
    )
    after.require_forkable(before)
    sentences = " ".join(after.continues(before))
    assert "a loop submitted with parameters.max_steps 9, unless its learning-rate" in sentences
    assert "linear, cosine) have the rates of the longer training" in sentences
