"""A training file of format version 1 as a checkpoint that our training job loads.

There are two outcomes. Where optimizers, schedules and position fit, training continues at the same
step. Where one of them does not, only the weights are taken over and training starts at step 0: a
position without the optimizer that belongs to it would be a lie. The receipt says which, and why.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

from trainops.files.description import Imported
from trainops.files.optimizers import steps_taken
from trainops.kind import KINDS
from trainops.kinds.training.config import TrainingConfig
from trainops.kinds.training.files.file import TrainingFile
from trainops.kinds.training.files.fit import (
    FAILED_STEP,
    CannotContinue,
    fit_optimizers,
    fit_schedulers,
    moved,
)
from trainops.kinds.training.files.fit_streams import fit_streams
from trainops.kinds.training.files.place import fit_history, fit_position
from trainops.kinds.training.job import TrainingJob
from trainops.kinds.training.progress import TrainingProgress
from trainops.learning.shapes import require_same_shape
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.job import StateDict
from trainops.runtime.receipt import Receipt, ReceiptItem


def import_training(
    file: TrainingFile, config: TrainingConfig, inputs: Mapping[str, Path] | None = None
) -> Imported:
    """Return what a job of this config would load to continue from the file.

    The random streams of this process stand afterwards where they stood before. Raises
    IncompatibleState where the weights are of another shape; InputError as making the job does.
    """
    before = reproducibility.state_dict()
    try:
        job = cast(TrainingJob, KINDS["training"].make_job(config, inputs))
        state = job.state_dict() | {"random": reproducibility.state_dict()}
        require_same_shape(state["model"], dict(file.model), "model_state_dict")
        state["model"] = dict(file.model)
        if file.is_weights_only:
            return _warm_start(file, state, "the file holds weights only")
        try:
            return _tried(_continued(file, job, state), job)
        except CannotContinue as obstacle:
            return _warm_start(file, state, str(obstacle))
    finally:
        reproducibility.load_state_dict(before)


def _tried(imported: Imported, job: TrainingJob) -> Imported:
    """Return what the job has loaded and gone a step on from. Raises CannotContinue."""
    try:
        state = freeze(imported.state)
        job.load_state_dict(freeze(_without_streams(state)))
        if job.step < job.total_steps:
            job.advance()
    except FAILED_STEP as error:
        raise CannotContinue(f"the first step with the file's state fails: {error!r}") from error
    return replace(imported, state=state)


def _warm_start(file: TrainingFile, state: StateDict, reason: str) -> Imported:
    """Return a state at step 0 with the file's weights."""
    left = ["optimizer", "scheduler"] if "scheduler" in state else ["optimizer"]
    items = (
        ReceiptItem("model", note="the weights only: training starts at step 0"),
        *(ReceiptItem(part, restored=False, exact=False, note=reason) for part in left),
        ReceiptItem(
            "data position", False, False, f"epoch {file.epoch}, step {file.global_step}: {reason}"
        ),
        ReceiptItem("random streams", False, False, "seeded anew, as for a first start"),
    )
    return Imported(0, freeze(state), Receipt(0, file.name, items))


def _continued(file: TrainingFile, job: TrainingJob, state: StateDict) -> Imported:
    """Return a state at the file's position. Raises CannotContinue."""
    cursor, place = fit_position(file, job)
    trainer = job.trainer
    optimizers, optimizer_items = fit_optimizers(file, trainer.optimizers)
    schedules, scheduler_items = fit_schedulers(file, trainer.schedulers, cursor)
    optimizers, schedulers = moved(schedules, optimizers, trainer.schedulers, trainer.optimizers)
    history, is_best, history_item = fit_history(file, job, cursor)
    random, random_items = fit_streams(file.rng_states, state["random"])
    progress = TrainingProgress(job.config, job.trainer.route, cursor, history)
    plain = progress.to_state(optimizers[0]["param_groups"][0]["lr"])
    items = (
        ReceiptItem("model"), *optimizer_items, *scheduler_items, place, *history_item,
        *random_items, *_left_behind(file),
    )  # fmt: skip
    parts: StateDict = {
        **state,
        "state": {
            **state["state"],
            **plain,
            "cursor": asdict(cursor),
            "origin": {
                "file": file.name,
                "step": cursor.optimizer_steps,
                "moved": [max(steps_taken(each), default=0) for each in optimizers],
                "ahead": [each.ahead for each in schedules],
                "rates": [[group["lr"] for group in each["param_groups"]] for each in optimizers],
            },
        },
        "optimizer": optimizers,
        "random": random,
        **({"scheduler": schedulers} if schedulers else {}),
        **({"history": history.stream} if history.stream is not None else {}),
        **{job.part_of(name): dict(file.model) for name in is_best},
    }
    step = cursor.optimizer_steps
    return Imported(step, parts, Receipt(step, file.name, items))


def _left_behind(file: TrainingFile) -> list[ReceiptItem]:
    """Return what the file has and this engine has no use for."""
    items = []
    if file.amp_scaler:
        items.append(ReceiptItem("amp scaler", False, False, "this engine trains without one"))
    if file.config_snapshot is not None:
        items.append(ReceiptItem("config", False, True, "the operation's own config holds"))
    return items


def _without_streams(state: StateDict) -> StateDict:
    return {part: each for part, each in state.items() if part != "random"}
