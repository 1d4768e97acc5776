"""What the parts of a training checkpoint must agree on: steps, positions, moments, rates.

An operation that began with another tool's file says so in its JSON state, under `origin`:
{"step", "moved": the steps of each optimizer, "ahead": how far each schedule was ahead of the
steps, "rates": of each group}, all of them at the import.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainops.files.errors import InvalidFields
from trainops.files.optimizers import MAX_FACTOR, counts_steps, steps_taken
from trainops.kinds.training.job import TrainingJob
from trainops.runtime.job import StateDict

LEAST_RATE = 1e-8
SAME = 1e-6  # relative: a fork scales rates by a ratio
Groups = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Fresh:
    """A fresh job: the groups of its optimizers, and of which parameters they keep a state.

    The parameters, by their numbers, are those that the first step moved; None: not known.
    """

    groups: Sequence[Groups]
    moved: Sequence[frozenset[int]] | None


def contradictions(step: int, state: StateDict) -> dict[str, str]:
    """Return what does not fit a training checkpoint of this step, by place."""
    plain: Mapping[str, Any] = state["state"]
    origin = _origin(state)
    found = {}
    for place, value in (
        ("state.cursor.optimizer_steps", plain["cursor"]["optimizer_steps"]),
        ("state.global_step", plain["global_step"]),
    ):
        if value != step:
            found[place] = f"is {value}; the checkpoint is of step {step}"
    for number, each in enumerate(state.get("scheduler", [])):
        last, ahead = each.get("last_epoch"), _at(origin.get("ahead"), number, 0)
        if counts_steps(each) and last != step + ahead:
            found[f"scheduler[{number}].last_epoch"] = (
                f"is {last}; the checkpoint is of step {step}{_more(ahead)}"
            )
    for number, each in enumerate(state["optimizer"]):
        late = origin["step"] - _at(origin["moved"], number, 0) if origin else 0
        for steps in sorted(steps_taken(each) - {step - late}):
            found[f"optimizer[{number}].state"] = (
                f"is {steps}; the checkpoint is of step {step}{_more(-late)}"
            )
    rates = [_plain(group["lr"]) for group in state["optimizer"][0]["param_groups"]]
    if plain["learning_rate"] not in rates[:1]:
        found["state.learning_rate"] = f"is {plain['learning_rate']}; the optimizer has {rates}"
    return found


def fresh_of(job: TrainingJob) -> Fresh:
    """Return what a fresh job tells, after the first step that it makes for that."""
    optimizers = job.trainer.optimizers
    groups = [[dict(group) for group in each.param_groups] for each in optimizers]
    try:
        job.advance()
    except Exception:  # noqa: BLE001 - the recipe's: None says that they are not compared
        return Fresh(groups, None)
    return Fresh(groups, [frozenset(each.state_dict()["state"]) for each in optimizers])


def compare_with_fresh(job: TrainingJob, state: StateDict, fresh: Fresh) -> list[str]:
    """Return what is odd in a state that the job has loaded. Raises InvalidFields."""
    origin, wrong, odd = _origin(state), {}, []
    for number, given in enumerate(state["optimizer"]):
        needed = fresh.moved[number] if fresh.moved is not None and job.step else frozenset()
        if absent := needed - given["state"].keys():
            problem = f"has no moments of {len(absent)} of the {len(needed)} parameters it moves"
            if origin:  # the file may have had fewer
                odd.append(f"optimizer[{number}].state {problem}")
            else:
                wrong[f"optimizer[{number}].state"] = problem
    for place, problem, is_wrong in _rates(job, state, fresh, origin):
        if is_wrong:
            wrong[place] = problem
        else:
            odd.append(f"{place} {problem}")
    if wrong:
        raise InvalidFields(wrong)
    if fresh.moved is None:
        odd.append("a fresh job makes no first step here: moments were not compared with its own")
    return odd


def _rates(
    job: TrainingJob, state: StateDict, fresh: Fresh, origin: Mapping[str, Any]
) -> Iterator[tuple[str, str, bool]]:
    """Yield a place, what its rate is, and whether that is wrong or only odd."""
    is_at_import = bool(origin) and origin["step"] == job.step  # where no schedule has set it yet
    for number, optimizer in enumerate(state["optimizer"]):
        groups = optimizer["param_groups"]
        schedules = _schedules_of(job, state, number)
        last_rates = schedules[0].get("_last_lr") if len(schedules) == 1 else None
        for k, group in enumerate(groups):
            place, rate = f"optimizer[{number}].param_groups[{k}].lr", _plain(group["lr"])
            imported = _at(_at(origin.get("rates"), number, []), k, None)
            bases = [_base(fresh.groups[number][k]), *([] if imported is None else [imported])]
            if schedules:
                set_last = _plain(_at(last_rates, k, rate))
                if rate != set_last and not is_at_import:
                    yield place, f"is {rate:g}; its schedule set {set_last:g}", True
                bases.append(_base(group))
            elif not any(abs(rate - base) <= SAME * abs(base) for base in bases):
                is_far = not LEAST_RATE <= rate <= MAX_FACTOR * max(bases)
                yield place, f"is {rate:g}; without a schedule it is {bases[-1]:g}", is_far
            if schedules and rate > MAX_FACTOR * max(bases):
                # A cycle of CyclicLR and the end of SWALR lie above the rate that they began with.
                is_of_schedule = last_rates is not None and rate == _plain(_at(last_rates, k, None))
                problem = f"is {rate:g}; more than {MAX_FACTOR} x {max(bases):g}"
                yield place, problem, not is_of_schedule


def _schedules_of(job: TrainingJob, state: StateDict, number: int) -> list[Mapping[str, Any]]:
    mine = job.trainer.optimizers[number]
    pairs = zip(job.trainer.schedulers, state.get("scheduler", []), strict=False)
    return [given for own, given in pairs if getattr(own, "optimizer", mine) is mine]


def _base(group: Mapping[str, Any]) -> float:
    """Return the rate that a group's schedule is of; without one, its rate."""
    found = [group.get(name) for name in ("max_lr", "initial_lr") if group.get(name) is not None]
    return float(max(map(_plain, found or [group["lr"]])))


def _origin(state: StateDict) -> Mapping[str, Any]:
    return state["state"].get("origin") or {}


def _at(values: Any, number: int, default: Any) -> Any:
    """Return an entry of a list, which may be missing or shorter."""
    is_there = isinstance(values, list | tuple) and number < len(values)
    return values[number] if is_there else default


def _more(steps: int) -> str:
    if not steps:
        return ""
    return f", and by its import {abs(steps)} {'ahead' if steps > 0 else 'behind'}"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value
