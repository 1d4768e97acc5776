"""State dicts of torch's optimizers and schedules, as every one of the formats holds them."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from trainops.files.fields import Fields, is_integer, is_number, joined, shown

MAX_FACTOR = 2  # a learning rate further above its base is a mistake


def read_optimizer(fields: Fields) -> Mapping[str, object]:
    """Return {"state": {number: {name: tensor}}, "param_groups": [{"lr", "params", ...}]}."""
    numbers: set[int] = set()
    groups = fields.each("param_groups")
    for group in groups:
        if not _is_rate(group.plain("lr", 0.0)):  # torch takes a tensor for it, too
            group.number("lr", at_least=0, default=0.0)
        numbers.update(group.integers("params"))
    for number, moments in fields.mapping("state").items():
        _check_moments(fields, number, moments, numbers)
    return {"state": fields.plain("state", {}), "param_groups": fields.plain("param_groups", [])}


def read_scheduler(fields: Fields) -> Mapping[str, object]:
    """Return the state dict of one schedule."""
    fields.integer("last_epoch", at_least=-1, default=None)
    return {name: fields.plain(name) for name in fields.names()}


def steps_taken(optimizer: Mapping[str, Any]) -> set[int]:
    """Return how often parameters were moved, where the optimizer counts that: one number."""
    return {int(moments["step"]) for moments in optimizer["state"].values() if "step" in moments}


def counts_steps(scheduler: Mapping[str, object]) -> bool:
    """Whether its last_epoch is a number of steps: a chain has none, a plateau counts epochs."""
    return "last_epoch" in scheduler and "num_bad_epochs" not in scheduler


def learning_rates(optimizer: Mapping[str, Any], place: str) -> dict[str, str]:
    """Return the places of learning rates far above what they started from."""
    found = {}
    for number, group in enumerate(optimizer["param_groups"]):
        base = group.get("max_lr", group.get("initial_lr"))
        if is_number(base) and group.get("lr", 0.0) > MAX_FACTOR * base:
            found[f"{place}.param_groups[{number}].lr"] = (
                f"is {group['lr']:g}; more than {MAX_FACTOR} x the {base:g} that it started from"
            )
    return found


def _check_moments(fields: Fields, number: object, moments: object, known: set[int]) -> None:
    place = joined("state", number)
    if not is_integer(number) or number not in known:
        fields.wrong(place, "is of a parameter that no group has")
    elif not isinstance(moments, Mapping):
        fields.wrong(place, f"is {shown(moments)}; must be a dict")
    else:
        for name, value in moments.items():
            if not (isinstance(value, Tensor) or is_number(value) or value is None):
                fields.wrong(joined(place, name), f"is {shown(value)}; must be a tensor")
        if "step" in moments and not _is_count(moments["step"]):
            step = shown(moments["step"])
            fields.wrong(f"{place}.step", f"is {step}; must be one number of at least 0")


def _is_rate(value: object) -> bool:
    """Whether this is a learning rate in a tensor."""
    return isinstance(value, Tensor) and value.numel() == 1 and bool(value >= 0)


def _is_count(value: object) -> bool:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            return False
        value = value.item()
    return is_number(value) and math.isfinite(value) and value >= 0
