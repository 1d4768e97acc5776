"""Files of a tool whose schedules move at the end of each epoch, too."""

from dataclasses import replace

import pytest

from tests.formats.conftest import Run, parse
from tests.formats.other_trainer import BATCHES, Trainer
from tests.thinning import quick_some
from trainops.files.verify import verify
from trainops.files.writing import write
from trainops.kinds.training.files.exchange import read_training
from trainops.kinds.training.files.exporting import export_training
from trainops.kinds.training.files.importing import import_training

pytestmark = [pytest.mark.usefixtures("foreign"), pytest.mark.slow]

CASES = {
    "step": {},
    "cosine": {"scheduler": "cosine"},
    "onecycle": {"scheduler": "onecycle"},
    "accumulated": {"scheduler": "cosine", "gradient_accumulation": 3},
}


@pytest.fixture(scope="module", params=quick_some(CASES, every=3))
def trained(request):
    config = CASES[request.param]
    trainer = Trainer(
        config.get("scheduler", "step"), accumulation=config.get("gradient_accumulation", 1)
    )
    return trainer.run(every_steps=5 if "gradient_accumulation" in config else 19), config


def positions(trainer):
    return {name: each.schedulers[0]["last_epoch"] for name, each in trainer.files.items()}


@pytest.mark.slow
def test_each_file_verifies(trained, tmp_path):
    trainer, _ = trained
    for name, file in trainer.files.items():
        write(file, tmp_path / file.name)
        report = verify(tmp_path / file.name)
        assert report.passed, (name, report.checks[-1])


@pytest.mark.slow
def test_each_continues_at_its_step_with_the_rates_that_the_other_tool_would_have_used(trained):
    """To the end of the epoch, also where the file was saved before the move at an epoch's end."""
    trainer, config = trained
    config = parse(epochs=3, **config)
    for name, file in trainer.files.items():
        imported = import_training(file, config)
        assert imported.step == file.global_step, (name, imported.receipt)
        job = Run(config).load(imported.state).job
        cursor = job.progress.cursor
        epoch, rates, expected = cursor.epoch, [], []
        while job.step < job.total_steps and cursor.epoch == epoch:
            rates.append(job.trainer.learning_rate)
            expected.append(trainer.rates[cursor.epoch * BATCHES + cursor.next_batch])
            job.advance()
        assert rates == expected, name


def test_the_last_file_is_at_the_end(trained):
    trainer, config = trained
    config = parse(epochs=4, **config)
    if "onecycle" in config.scheduler:
        config = parse(epochs=3, scheduler="onecycle")
    imported = import_training(trainer.files["end of training"], config)
    cursor = imported.state["state"]["cursor"]
    assert (cursor["epoch"], cursor["next_batch"]) == (3, 0)


def test_the_receipt_says_how_far_ahead_the_schedule_is():
    trainer = Trainer("step").run(every_steps=19)
    ahead = {"step 19": 0, "step 38": 1, "end of epoch 0": 1, "step 57": 1, "step 95": 2}
    for name, expected in ahead.items():
        imported = import_training(trainer.files[name], parse(epochs=3))
        item = next(each for each in imported.receipt.items if each.part == "scheduler")
        assert item.restored and item.exact == (expected == 0)
        assert (f"{expected} ahead of step" in item.note) == (expected > 0)


def test_what_was_imported_ahead_is_exported_and_imported_ahead(tmp_path):
    """The schedule does not fall back on the way."""
    config = parse(epochs=3)
    file = Trainer("step").run(every_steps=19).files["step 57"]
    run = Run(config).load(import_training(file, config).state).until(2 * BATCHES + 5)
    exported = export_training(run.parts(), config, name="x", saved_at=1.0)
    assert exported.schedulers[0]["last_epoch"] == exported.global_step + 1
    write(exported, tmp_path / "ours.ckpt")
    assert verify(tmp_path / "ours.ckpt").passed
    again = import_training(read_training(tmp_path / "ours.ckpt"), config)
    assert again.step == run.job.step
    rate = run.job.trainer.learning_rate
    assert Run(config).load(again.state).job.trainer.learning_rate == rate


def test_a_schedule_of_ours_is_not_moved_where_a_validation_is_still_to_come():
    config = parse(epochs=3)
    run = Run(config)
    run.job.in_parts = True
    while not run.job.is_evaluating:
        run.job.advance()
    file = export_training(run.parts(), config, name="x", saved_at=1.0)
    assert file.schedulers[0]["last_epoch"] == file.global_step == BATCHES
    imported = import_training(file, config)
    assert imported.state["scheduler"][0]["last_epoch"] == BATCHES == imported.step


@pytest.mark.parametrize(("moves", "is_taken"), [(-1, False), (0, True), (1, True), (2, False)])
def test_only_positions_that_the_other_tool_can_be_in_are_taken(moves, is_taken):
    file = Trainer("step").run(every_steps=19).files["step 57"]  # in epoch 1
    schedule = file.schedulers[0] | {"last_epoch": 57 + moves}
    imported = import_training(replace(file, schedulers=(schedule,)), parse(epochs=3))
    assert (imported.step == 57) == is_taken
    if not is_taken:
        assert f"stands at {57 + moves}, after 57 steps and 1 epochs" in str(imported.receipt)


def test_a_cycle_that_would_end_too_early_for_its_moves_is_none():
    file = Trainer("onecycle").run(every_steps=19).files["step 57"]
    short = file.schedulers[0] | {
        "total_steps": 3 * BATCHES + 1
    }  # enough for a schedule at step 57
    imported = import_training(
        replace(file, schedulers=(short,)), parse(epochs=3, scheduler="onecycle")
    )
    assert imported.step == 0
    assert "ends after 115 moves, this config after 116" in str(imported.receipt)
