"""Whether a file's optimizers and schedules can continue in a job of ours, and as what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainops.files.fields import is_integer, is_number, shown
from trainops.kinds.training.files.file import OUR_PHASE, TrainingFile
from trainops.kinds.training.progress import Cursor
from trainops.learning.shapes import require_same_optimizers, require_same_shape
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.receipt import ReceiptItem

# How the step is computed, not what: the machine that goes on decides (capturable needs a GPU).
IMPLEMENTATION = frozenset({"foreach", "fused", "capturable", "differentiable"})
# Entries of a group that come and go with versions of torch and with schedules.
LOOSE = IMPLEMENTATION | frozenset(
    {
        "initial_lr", "maximize", "decoupled_weight_decay", "amsgrad", "nesterov", "dampening",
    }
)  # fmt: skip
DECOUPLED = "decoupled_weight_decay"  # what tells AdamW from Adam
FAILED_STEP = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip


class CannotContinue(Exception):
    """Training cannot continue at the file's step; the message says what is in the way."""


def fit_optimizers(
    file: TrainingFile, own: Sequence[Optimizer]
) -> tuple[list[dict[str, Any]], list[ReceiptItem]]:
    """Return a state for each of the job's optimizers. Raises CannotContinue.

    Fewer in the file than here is tolerated: the rest start anew. More are left out.
    """
    if not file.optimizers:
        raise CannotContinue("the file has no optimizer")
    states = [_fit(number, each, own) for number, each in enumerate(file.optimizers[: len(own)])]
    items = [
        ReceiptItem(_named("optimizer", number, len(own)), note=_changed(state, own[number]))
        for number, state in enumerate(states)
    ]
    for number in range(len(states), len(own)):
        states.append(own[number].state_dict())
        items.append(
            _left(_named("optimizer", number, len(own)), "the file has fewer; starts anew")
        )
    items += [
        _left(f"optimizer {number} of the file", f"this job has {len(own)}")
        for number in range(len(own), len(file.optimizers))
    ]
    return states, items


@dataclass(frozen=True, slots=True)
class FileSchedule:
    """One schedule of a file, as a state for a schedule of the job at the same place.

    `ahead` is how many times more than steps it was moved: the other tool moves a schedule at each
    step, and once more at the end of each epoch. Where the file was saved between the last step of
    an epoch and that move, it `is_owed` one.
    """

    state: dict[str, Any]
    ahead: int
    is_owed: bool


def fit_schedulers(
    file: TrainingFile, own: Sequence[LRScheduler], cursor: Cursor
) -> tuple[list[FileSchedule], list[ReceiptItem]]:
    """Return what each of the job's schedules continues from, where the cursor stands.

    Raises CannotContinue.
    """
    if len(file.schedulers) < len(own):
        raise CannotContinue(f"the file has {len(file.schedulers)} schedules, this job {len(own)}")
    schedules = [
        _fit_scheduler(f"scheduler_state_dicts[{number}]", given, mine.state_dict(), file, cursor)
        for number, (given, mine) in enumerate(zip(file.schedulers, own, strict=False))
    ]
    items = [
        _at(_named("scheduler", number, len(own)), schedule, cursor.optimizer_steps)
        for number, schedule in enumerate(schedules)
    ]
    items += [
        _left(f"scheduler {number} of the file", "this job's config has none: the rate stays")
        for number in range(len(own), len(file.schedulers))
    ]
    return schedules, items


def moved(
    schedules: Sequence[FileSchedule],
    optimizers: list[dict[str, Any]],
    own_schedulers: Sequence[LRScheduler],
    own_optimizers: Sequence[Optimizer],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the states of the optimizers and of the schedules after the moves that are owed.

    A schedule sets the rates of its optimizer, so both are loaded into the job's own, which are
    left where they then stand. Raises CannotContinue.
    """
    if not any(schedule.is_owed for schedule in schedules):
        return optimizers, [schedule.state for schedule in schedules]
    try:
        for optimizer, state in zip(own_optimizers, optimizers, strict=True):
            optimizer.load_state_dict(freeze(state))
        for scheduler, schedule in zip(own_schedulers, schedules, strict=True):
            scheduler.load_state_dict(freeze(schedule.state))
            if schedule.is_owed:
                scheduler.step()
    except FAILED_STEP as error:
        raise CannotContinue(f"a schedule cannot move from where it stands: {error!r}") from error
    return (
        [optimizer.state_dict() for optimizer in own_optimizers],
        [scheduler.state_dict() for scheduler in own_schedulers],
    )


def _fit(number: int, given: Mapping[str, Any], own: Sequence[Optimizer]) -> dict[str, Any]:
    place, mine = f"optimizer_state_dicts[{number}]", own[number].state_dict()["param_groups"]
    theirs = given["param_groups"]
    if len(theirs) != len(mine):
        _stop(place, f"has {len(theirs)} groups of parameters, this job {len(mine)}")
    groups = [
        _fit_group(f"{place}.param_groups[{i}]", theirs[i], mine[i]) for i in range(len(mine))
    ]
    state: dict[str, Any] = {"state": given["state"], "param_groups": groups}
    try:
        require_same_optimizers([own[number]], [state])
    except IncompatibleState as error:
        _stop(place, str(error))
    return state


def _fit_group(place: str, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file's group with the keys that ours has."""
    if differing := (theirs.keys() ^ mine.keys()) - LOOSE:
        _stop(
            place, f"is of another kind of optimizer: only one has {', '.join(sorted(differing))}"
        )
    if list(theirs["params"]) != list(mine["params"]):
        _stop(place, f"has {len(theirs['params'])} parameters, this job's {len(mine['params'])}")
    if theirs.get(DECOUPLED, mine.get(DECOUPLED)) != mine.get(DECOUPLED):
        _stop(place, f"has {DECOUPLED} {theirs[DECOUPLED]}, this job's {mine[DECOUPLED]}")
    return {
        name: value if name in IMPLEMENTATION else theirs.get(name, value)
        for name, value in mine.items()
    }


def _fit_scheduler(
    place: str, given: Mapping[str, Any], mine: dict[str, Any], file: TrainingFile, cursor: Cursor
) -> FileSchedule:
    """Return the file's schedule with the keys that ours has; private ones may be missing."""
    public = {name for name in given.keys() ^ mine.keys() if not str(name).startswith("_")}
    if public - {"verbose"}:
        _stop(place, f"is of another kind: only one has {', '.join(sorted(public))}")
    last: Any = given.get("last_epoch")
    step = cursor.optimizer_steps
    if not (is_integer(last) and step <= last <= step + cursor.epoch):
        _stop(
            place,
            f"stands at {last}, after {step} steps and {cursor.epoch} epochs; it must have moved "
            "with each step, and may have moved at the end of each epoch",
        )
    is_ours = file.resume_state is not None and file.resume_state.phase == OUR_PHASE
    is_owed = file.epoch < cursor.epoch and last == step + file.epoch and not is_ours
    ahead = last - step + is_owed
    ends: Any = given.get("total_steps")
    wanted: Any = mine.get("total_steps")
    if is_number(ends) and is_number(wanted) and ends < wanted + ahead:
        _stop(place, f"ends after {ends} moves, this config after {wanted + ahead}")
    state = {name: given.get(name, value) for name, value in mine.items()}
    try:
        require_same_shape(mine, state, place)
    except IncompatibleState as error:
        raise CannotContinue(str(error)) from error
    return FileSchedule(state, ahead, is_owed)


def _at(part: str, schedule: FileSchedule, step: int) -> ReceiptItem:
    if not schedule.ahead:
        return ReceiptItem(part, note=f"at step {step}")
    return ReceiptItem(
        part,
        exact=False,
        note=f"at position {step + schedule.ahead}, {schedule.ahead} ahead of step {step}: the "
        "other tool moves it at the end of each epoch, too; here it goes on with each step only",
    )


def _changed(state: Mapping[str, Any], own: Optimizer) -> str:
    """Say what the file's groups have instead of what the config asks for."""
    mine = own.state_dict()["param_groups"]
    changes = [
        f"{name} {shown(theirs[name])} of the file instead of {shown(ours[name])}"
        for theirs, ours in zip(state["param_groups"], mine, strict=True)
        for name in ours
        if theirs[name] != ours[name]
    ]
    return "; ".join(changes)


def _named(part: str, number: int, of: int) -> str:
    return part if of == 1 else f"{part} {number}"


def _left(part: str, reason: str) -> ReceiptItem:
    return ReceiptItem(part, restored=False, exact=False, note=reason)


def _stop(place: str, problem: str) -> Never:
    raise CannotContinue(f"{place} {problem}")
