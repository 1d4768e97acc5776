"""The line of each epoch of a training, in a stream."""

import math

import pytest
import torch

from tests.engines.incremental import Run
from trainops.kind import KINDS
from trainops.kinds.training.history import History
from trainops.kinds.training.progress import NEWEST_EPOCHS, TrainingProgress
from trainops.learning.data import BatchPlan
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.errors import IncompatibleState

ROUTE = BatchPlan(8, 4, 1)


def filled(num_epochs):
    history = History()
    for epoch in range(num_epochs):
        history.append({"val_loss": 1 / (epoch + 1), "train_loss": float(epoch)})
    return history


def recorded(num_epochs):
    """Return the record of a run that has finished so many epochs."""
    config = KINDS["training"].parse_config({"recipe": "toy", "epochs": num_epochs + 1})
    progress = TrainingProgress(config, ROUTE)
    for epoch in range(num_epochs):
        progress.step_done(1, 4)
        progress.step_done(1, 4)
        progress.epoch_done({"val_loss": abs(epoch - 7.0), "train_loss": float(epoch)})
    return progress


def test_lines_have_their_epoch_and_the_newest_come_last():
    assert filled(3).newest(2) == [
        {"epoch": 2, "val_loss": 0.5, "train_loss": 1.0},
        {"epoch": 3, "val_loss": 1 / 3, "train_loss": 2.0},
    ]
    assert len(filled(3).newest(9)) == 3 and History().newest(9) == []


@pytest.mark.slow
def test_the_newest_lines_are_found_behind_many_full_segments():
    history = filled(5000)
    assert len(history.stream.sealed) > 3
    lines = history.newest(700)
    assert [line["epoch"] for line in lines] == list(range(4301, 5001))
    assert [line["train_loss"] for line in lines] == list(map(float, range(4300, 5000)))
    assert history.values("train_loss") == list(map(float, range(5000)))


def test_a_metric_that_comes_later_is_not_a_number_in_the_lines_before():
    history = filled(2)
    history.append({"val_loss": 0.1, "val_accuracy": 0.9})
    assert [math.isnan(value) for value in history.values("val_accuracy")] == [True, True, False]
    assert math.isnan(history.newest(1)[0]["train_loss"])
    assert history.values("val_loss") == [1.0, 0.5, 0.1] and history.values("unknown") == []


@pytest.mark.slow
def test_what_a_checkpoint_writes_of_it_follows_the_new_epochs(tmp_path):
    def written(num_epochs):
        run, progress = Run(tmp_path / str(num_epochs)), recorded(num_epochs)
        sizes = []
        for _ in range(3):
            part = {"history": progress.history.stream}
            state = {"state": progress.to_state(0.1), **part}
            sizes.append(run.save(state).written_bytes)
            progress.epoch_done({"val_loss": 9.0, "train_loss": 9.0})
        return sizes[1:]  # the first of an attempt is whole

    few, many = written(2 * NEWEST_EPOCHS), written(40_000)
    assert max(many) < 2 * max(few) < 2**17


def test_what_people_read_of_it_stays_short():
    progress = recorded(3 * NEWEST_EPOCHS)
    state = progress.to_state(0.1)
    assert [line["epoch"] for line in state["training_history"]] == list(range(201, 301))
    assert state["best_epoch"] == 8 and state["best_val_loss"] == 0.0  # long before those
    assert state["epochs_without_improvement"] == 3 * NEWEST_EPOCHS - 8
    again = TrainingProgress(progress.config, ROUTE).from_state(state, progress.history, 0.1)
    assert again.best == progress.best and again.to_state(0.1) == state


@pytest.mark.parametrize(
    "part",
    [
        3,
        Stream({}),
        Stream({"val_loss": (torch.float32, ())}),
        Stream({"val_loss": (torch.float64, (2,))}),
    ],
    ids=["no stream", "no columns", "another type", "another shape"],
)
def test_what_is_no_history_is_refused(part):
    with pytest.raises(IncompatibleState):
        History.from_part(part)


def test_a_history_of_other_epochs_is_refused():
    progress = recorded(3)
    state = progress.to_state(0.1)
    for history in (History(), filled(3), recorded(4).history, recorded(2).history):
        with pytest.raises(IncompatibleState):
            TrainingProgress(progress.config, ROUTE).from_state(state, history, 0.1)
