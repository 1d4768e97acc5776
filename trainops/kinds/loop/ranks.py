"""What several ranks of a training loop have in common, and what each has of its own."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import distributed, nn
from torch.optim import Optimizer

from trainops.kinds.loop.kept_values import from_plain, to_plain, typed_as
from trainops.kinds.loop.lazy_modules import load_module, state_of_module
from trainops.kinds.loop.means import Total
from trainops.kinds.loop.rank_streams import Gather
from trainops.learning.optimizer_state import load_optimizer
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import StateDict
from trainops.runtime.ranks import Devices

Kept = Mapping[str, Any]  # objects that a loop keeps, by name


class Merging(ABC):
    """A kept object of which the states of several ranks can become that of one."""

    @abstractmethod
    def merged(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what the state has of these states. Raises IncompatibleState."""


def replicated(kept: Kept) -> dict[str, object]:
    """Return what must be equal in all ranks: parameters of modules, states of optimizers."""
    found: dict[str, object] = {}
    for name, thing in kept.items():
        if isinstance(thing, nn.Module):
            found[name] = dict(thing.named_parameters())
        elif isinstance(thing, Optimizer):
            found[name] = thing.state_dict()
    return found


def rank_state_of(kept: Kept) -> StateDict:
    """Return what may differ: buffers (running means of a batch norm), dicts, other states."""
    return {
        name: _buffers(thing) if isinstance(thing, nn.Module) else state_of(thing, name)
        for name, thing in kept.items()
        if not isinstance(thing, Optimizer)
    }


def load_rank_state(kept: Kept, state: object) -> None:
    """Put that back. Raises IncompatibleState."""
    if not isinstance(state, dict) or state.keys() != rank_state_of(kept).keys():
        raise IncompatibleState("the state of a rank has other objects than those that are kept")
    for name, saved in state.items():
        put_back(kept[name], saved)


def put_back(thing: Any, saved: Any) -> None:
    """Load the state of one object; of a module perhaps only its buffers."""
    if not isinstance(thing, nn.Module):
        saved = from_plain(saved)
    if isinstance(thing, nn.Module):
        load_module(thing, saved)
    elif isinstance(thing, Optimizer):
        load_optimizer(thing, saved)
    elif isinstance(thing, dict):
        thing.clear()
        thing.update(saved)
    else:
        is_ours = type(thing).__module__.partition(".")[0] == "trainops"
        thing.load_state_dict(saved if is_ours else typed_as(thing.state_dict(), saved))


def total_of(devices: Devices, device: torch.device) -> Total:
    """Return what adds up numbers over all ranks; each rank must call it with as many."""
    if devices.num_ranks == 1:
        return list

    def total(numbers: list[float]) -> list[float]:
        sums = torch.tensor(numbers, dtype=torch.float64, device=device)
        distributed.all_reduce(sums)
        return [float(each) for each in sums.tolist()]

    return total


def gather_of(devices: Devices, device: torch.device) -> Gather | None:
    """Return what gathers integers of all ranks, of each as many; None for one rank."""
    if devices.num_ranks == 1:
        return None

    def gather(numbers: list[int]) -> list[list[int]]:
        rows = torch.zeros(devices.num_ranks, len(numbers), dtype=torch.int64)
        rows[devices.rank] = torch.tensor(numbers, dtype=torch.int64)
        rows = rows.to(device)
        distributed.all_reduce(rows)
        found: list[list[int]] = rows.tolist()
        return found

    return gather


def rescaled(
    course: Mapping[str, Any], loaders: Collection[str], *, before: int, now: int
) -> Mapping[str, Any]:
    """Return the place of a loop for another number of ranks: passes continue at the same example.

    Where it lies between two batches of a rank, the first of them is trained once more; `counted`
    says how many batches an evaluation has counted.
    """
    if before == now:
        return course
    loops = {}
    for name, each in course["loops"].items():
        given = each["taken"] * before
        counted = max(given, each.get("counted", 0))
        changes = {"taken": given // now, "counted": counted} if name in loaders else {}
        loops[name] = {**each, "length": None, **changes}  # known when the loop is entered
    return {**course, "loops": loops}


def _buffers(module: nn.Module) -> dict[str, Any]:
    parameters = dict(module.named_parameters(remove_duplicate=False))  # tied ones by all names
    return {name: each for name, each in module.state_dict().items() if name not in parameters}


def state_of(thing: Any, name: str) -> Any:
    """Return what is saved of one object. Raises UnfreezableState."""
    if isinstance(thing, nn.Module):
        return state_of_module(thing)
    is_dict = isinstance(thing, dict)
    return to_plain(thing if is_dict else thing.state_dict(), f"state.{name}", is_dict=is_dict)
