"""The optimizer of a client in training: one row here, a state dict of torch's in a file."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from trainops.files.optimizers import steps_taken
from trainops.kinds.federated.options import FederatedOptions
from trainops.learning.shapes import require_same_optimizers, require_same_shape
from trainops.runtime.errors import IncompatibleState

MOMENTS = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq")}
# Of a group: what changes a step. (The others choose between implementations.)
SETTINGS = (
    "lr", "momentum", "dampening", "nesterov", "betas", "eps", "amsgrad", "maximize",
    "weight_decay", "decoupled_weight_decay",
)  # fmt: skip


def to_torch(
    state: Mapping[str, Any], config: FederatedOptions, shapes: Sequence[torch.Size]
) -> dict[str, Any]:
    """Return what torch's optimizer of parameters of these shapes would have saved."""
    sizes = [shape.numel() for shape in shapes]
    pieces = [moment[0].split(sizes) for moment in state["moments"]]
    kept: dict[int, dict[str, Tensor]] = {}
    for number, shape in enumerate(shapes if pieces else ()):
        named = zip(_moments_of(config), pieces, strict=True)
        kept[number] = {name: each[number].view(shape) for name, each in named}
        if "steps" in state:
            kept[number]["step"] = torch.tensor(float(state["steps"].item()))
    return {"state": kept, "param_groups": _theirs(config, shapes).state_dict()["param_groups"]}


def from_torch(
    theirs: Mapping[str, Any],
    own: Mapping[str, Any],
    config: FederatedOptions,
    shapes: Sequence[torch.Size],
) -> dict[str, Any]:
    """Return a row's optimizer with the moments of a file's. Raises IncompatibleState."""
    groups = _theirs(config, shapes).state_dict()["param_groups"]
    given = {"state": theirs.get("state", {}), "param_groups": groups}
    # Its moments are numbered in the order of its groups; only in this one that is the model's.
    orders = [list(each.get("params", ())) for each in theirs.get("param_groups", ())]
    if orders != [list(range(len(shapes)))]:
        raise IncompatibleState(
            f"its optimizer has the parameters {orders!r:.80}, not in one group"
        )
    require_same_optimizers([_theirs(config, shapes)], [given])
    names = _moments_of(config) if own["moments"] else ()
    if unknown := _kept_names(given["state"]) - {*names, "step"}:
        kind = config.optimizer
        raise IncompatibleState(f"its optimizer keeps {sorted(unknown)}; {kind} here does not")
    pieces = [[_moment(given["state"], n, name) for n in range(len(shapes))] for name in names]
    moments = [torch.cat([each.reshape(-1) for each in some]).unsqueeze(0) for some in pieces]
    taken_over = [each.to(mine) for each, mine in zip(moments, own["moments"], strict=True)]
    row: dict[str, Any] = {"moments": taken_over}
    if "steps" in own:
        if len(taken := steps_taken(given)) != 1:
            raise IncompatibleState(f"its optimizer took {sorted(taken)} steps; one number is due")
        row["steps"] = torch.full_like(own["steps"], taken.pop())
    require_same_shape(own, row, "its optimizer")
    return row


def other_settings(theirs: Mapping[str, Any], config: FederatedOptions) -> dict[str, Any]:
    """Return the settings of a file's optimizer that are not those here, by their names."""
    own = _theirs(config, [torch.Size([1])]).param_groups[0]
    return {
        name: group[name]
        for group in theirs.get("param_groups", ())
        for name in SETTINGS
        if name in group and _plain(group[name]) != _plain(own.get(name, 0))
    }


def _plain(value: Any) -> Any:
    value = value.tolist() if isinstance(value, Tensor) else value
    return list(value) if isinstance(value, tuple) else value


def _kept_names(state: Mapping[int, Mapping[str, Any]]) -> set[str]:
    return {n for each in state.values() for n, value in each.items() if value is not None}


def _moments_of(config: FederatedOptions) -> Sequence[str]:
    return MOMENTS[config.optimizer.removesuffix("w")]


def _moment(state: Mapping[int, Mapping[str, Any]], number: int, name: str) -> Tensor:
    found = state.get(number, {}).get(name)
    if not isinstance(found, Tensor):
        raise IncompatibleState(f"its optimizer has no {name} of parameter {number}")
    return found


def _theirs(config: FederatedOptions, shapes: Sequence[torch.Size]) -> Optimizer:
    parameters = [nn.Parameter(torch.empty(shape, device="meta")) for shape in shapes]
    rate, decay = config.learning_rate, config.weight_decay
    match config.optimizer:
        case "sgd":
            return SGD(parameters, rate, config.momentum, weight_decay=decay)
        case "adam":
            return Adam(parameters, rate, weight_decay=decay)
        case "adamw":
            return AdamW(parameters, rate, weight_decay=decay)
