"""Models whose parameters and optimizer states are divided over the ranks, by torch's FSDP2.

Imported by sharded runs only: it takes two seconds.
"""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, Shard
from torch.optim import Optimizer

from trainops.kinds.loop.metric_states import require_whole
from trainops.kinds.loop.rows import ROWS, SHAPE, Kept, Tree, is_rows, joined_parts, mapped
from trainops.learning.optimizer_state import needs_closure
from trainops.runtime.errors import IncompatibleState, InputError
from trainops.runtime.ranks import Devices

BY_ROWS = (Shard(0),)


class Shards:
    """The divided models of one rank; a `Sharding`."""

    is_divided = True

    def __init__(self, devices: Devices, device: torch.device) -> None:
        self._rank, self._num_ranks, self._device = devices.rank, devices.num_ranks, device
        self._mesh: DeviceMesh | None = None
        self._models: list[nn.Module] = []
        self._trained: list[tuple[str, Tensor, bool]] = []  # whether a parameter has gradients
        self._replaced: list[weakref.ref[Tensor]] = []  # parameters from before they were divided

    def shard(
        self, model: nn.Module, units: Iterable[nn.Module] | None, methods: Iterable[str] = ()
    ) -> nn.Module:
        """Divide a model unit by unit, each on its way to the device of this rank."""
        if self._mesh is None:
            self._mesh = init_device_mesh(self._device.type, (self._num_ranks,))
        self._replaced += [weakref.ref(each) for each in model.parameters()]
        for unit in blocks(model) if units is None else units:
            fully_shard(unit, mesh=self._mesh)
        fully_shard(model, mesh=self._mesh)
        for name in methods:
            register_fsdp_forward_method(model, name)
        self._models.append(model)
        self._trained += [(name, p, p.requires_grad) for name, p in model.named_parameters()]
        return model

    def require_sharded(self, kept: Kept) -> None:
        if not self._models:
            problem = "got full for a recipe that does not call run.wrap"
            raise InputError({"sharding": f"{problem}; allowed: none, or a loop that calls it"})
        replaced = {id(each) for ref in self._replaced if (each := ref()) is not None}
        for name, thing in kept.items():
            if not isinstance(thing, Optimizer):
                continue
            if needs_closure(thing):
                problem = f"got {type(thing).__name__} as {name!r} with sharding: full"
                raise InputError({"recipe": f"{problem}; allowed: optimizers without a closure"})
            if any(id(p) in replaced for p in _parameters(thing)):
                problem = f"got {name!r}, made before run.wrap divided its parameters"
                raise InputError({"recipe": f"{problem}; allowed: optimizers made after run.wrap"})

    def reshard(self) -> None:
        """Free whole parameters that a forward pass without a backward pass has left.

        To copy a state frees them, too, but not in all ranks at the same time, and then the ranks
        would differ in what they gather next.
        """
        for name, parameter, is_trained in self._trained:
            if parameter.requires_grad != is_trained:  # FSDP2 would not follow
                problem = f"{name} was {'frozen' if is_trained else 'unfrozen'} while training"
                allowed = "with sharding: full, to freeze parameters before they are divided"
                raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        for model in self._models:
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()

    def models(self, kept: Kept) -> dict[str, nn.Module]:
        return {
            name: each
            for name, each in kept.items()
            if isinstance(each, nn.Module) and _is_divided(each)
        }

    def divided(self, kept: Kept) -> dict[str, Tree]:
        for name, thing in kept.items():
            if isinstance(thing, dict):
                require_whole(repr(name), thing)
        return {n: _rows_of(each.state_dict()) for n, each in kept.items() if _is_divided(each)}

    def common(self, kept: Kept) -> dict[str, Tree]:
        return {
            name: _without_rows(
                each.state_dict() if isinstance(each, Optimizer) else dict(each.named_parameters())
            )
            for name, each in kept.items()
            if _is_divided(each)
        }

    def gathered(self, models: Mapping[str, nn.Module]) -> dict[str, dict[str, Tensor]] | None:
        found = {name: self._gathered(model) for name, model in models.items()}
        return None if self._rank else found

    def opened(self, kept: Kept, parts: Mapping[int, Tree], num_ranks: int) -> dict[str, Tree]:
        if num_ranks != self._num_ranks:
            return self.laid_out(kept, joined_parts(parts, num_ranks))
        if self._rank not in parts:
            raise IncompatibleState(f"the state has no part of rank {self._rank}")
        return {name: self._own(tree) for name, tree in parts[self._rank].items()}

    def laid_out(self, kept: Kept, state: Mapping[str, Tree]) -> dict[str, Tree]:
        return {
            name: self._cut(kept[name], tree) if _is_divided(kept.get(name)) else tree
            for name, tree in state.items()
        }

    def _gathered(self, model: nn.Module) -> dict[str, Tensor]:
        whole = {}
        for name, each in model.state_dict().items():
            full = each.full_tensor() if isinstance(each, DTensor) else each
            if not self._rank:
                whole[name] = full.to("cpu", copy=True)
        return whole

    def _own(self, tree: Tree) -> Tree:
        if is_rows(tree):
            return self._placed(tree[ROWS], torch.Size(tree[SHAPE]))
        return mapped(self._own, tree)

    def _cut(self, thing: Any, tree: Tree) -> Tree:
        """Return the state of a divided object with this rank's rows of its whole tensors."""
        if isinstance(thing, nn.Module):
            own = thing.state_dict()
            return {name: self._rows(own.get(name), each) for name, each in tree.items()}
        like = dict(enumerate(_parameters(thing)))
        state = {
            number: {name: self._rows(like.get(number), each) for name, each in values.items()}
            for number, values in tree["state"].items()
        }
        return {**tree, "state": state}

    def _rows(self, like: object, whole: object) -> object:
        """Return the rows of this rank if `like` is divided and has the shape of `whole`."""
        if not (isinstance(like, DTensor) and isinstance(whole, Tensor)):
            return whole
        if like.shape != whole.shape:
            return whole
        pieces = whole.chunk(self._num_ranks)
        rows = pieces[self._rank] if self._rank < len(pieces) else whole[:0]
        return self._placed(rows, whole.shape)

    def _placed(self, rows: Tensor, shape: torch.Size) -> DTensor:
        if self._mesh is None:
            raise IncompatibleState("the state is of a divided model; the loop divides none")
        return DTensor.from_local(
            rows.to(self._device, copy=True), self._mesh, BY_ROWS,
            run_check=False, shape=shape, stride=torch.empty(shape, device="meta").stride(),
        )  # fmt: skip


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the modules in the nn.ModuleLists of a model, inner ones first."""
    lists = [each for each in model.modules() if isinstance(each, nn.ModuleList)]
    found = [block for each in reversed(lists) for block in each]
    return [each for each in found if not isinstance(each, nn.ModuleList) and _has_parameters(each)]


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _is_divided(thing: object) -> bool:
    """Whether it is a module or an optimizer with rows of parameters."""
    if isinstance(thing, Optimizer):
        return any(isinstance(each, DTensor) for each in _parameters(thing))
    return isinstance(thing, nn.Module) and any(
        isinstance(each, FSDPModule) for each in thing.modules()
    )


def _rows_of(tree: Tree) -> Tree:
    if not isinstance(tree, DTensor):
        return mapped(_rows_of, tree)
    if tuple(tree.placements) != BY_ROWS:
        problem = f"got a tensor that is divided by {tree.placements}"
        raise IncompatibleState(f"{problem}; allowed: by rows, (Shard(dim=0),)")
    return {ROWS: tree.to_local().detach(), SHAPE: list(tree.shape)}


def _without_rows(tree: Tree) -> Tree:
    return list(tree.shape) if isinstance(tree, DTensor) else mapped(_without_rows, tree)


def _parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
