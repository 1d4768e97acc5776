"""Rows: what a rank holds of a tensor that is divided over the ranks, and how they are joined.

A state has them as `{"rows": tensor, "of": shape}`, whatever the number of ranks, so that a process
without FSDP2 can read it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from trainops.runtime.errors import IncompatibleState

Tree: TypeAlias = Any  # dicts, lists and tuples of tensors and plain values
Kept: TypeAlias = Mapping[str, Any]  # objects that a loop keeps, by name
PART, SHARDS = "rank0", "shards"  # part of a checkpoint; where other ranks have theirs in their own
ROWS, SHAPE = "rows", "of"


class Sharding(Protocol):
    """How the kept objects of one rank are divided."""

    @property
    def is_divided(self) -> bool:
        """Whether models are divided over the ranks."""

    def shard(
        self, model: nn.Module, units: Iterable[nn.Module] | None, methods: Iterable[str] = ()
    ) -> nn.Module | None:
        """Divide a model in place and return it; None if models are not divided here."""

    def require_sharded(self, kept: Kept) -> None:
        """Raise InputError unless a model is divided, and kept optimizers have its parameters."""

    def reshard(self) -> None:
        """Free whole parameters that a forward pass has left. To be called in all ranks."""

    def models(self, kept: Kept) -> dict[str, nn.Module]:
        """Return the divided models."""

    def divided(self, kept: Kept) -> dict[str, Tree]:
        """Return the states of divided objects, with the rows of this rank."""

    def common(self, kept: Kept) -> dict[str, Tree]:
        """Return what divided objects have equal in all ranks: shapes and plain values."""

    def gathered(self, models: Mapping[str, nn.Module]) -> dict[str, dict[str, Tensor]] | None:
        """Return the whole models on the CPU of rank 0; None in other ranks.

        To be called in all ranks. Besides its rows, another rank holds one tensor at a time.
        """

    def opened(self, kept: Kept, parts: Mapping[int, Tree], num_ranks: int) -> dict[str, Tree]:
        """Return states that the kept objects can load, from what `divided` returned by rank.

        num_ranks: of the state. With as many, each rank takes its own part. With another number,
        rows are joined and divided anew. Raises IncompatibleState.
        """

    def laid_out(self, kept: Kept, state: Mapping[str, Tree]) -> dict[str, Tree]:
        """Return states that the kept objects can load, from states with whole tensors."""


class Undivided:
    """There is one process, or every rank has the whole models."""

    is_divided = False

    def shard(
        self, model: nn.Module, units: Iterable[nn.Module] | None, methods: Iterable[str] = ()
    ) -> None: ...
    def require_sharded(self, kept: Kept) -> None: ...
    def reshard(self) -> None: ...

    def models(self, kept: Kept) -> dict[str, nn.Module]:
        return {}

    def divided(self, kept: Kept) -> dict[str, Tree]:
        return {}

    def common(self, kept: Kept) -> dict[str, Tree]:
        return {}

    def gathered(self, models: Mapping[str, nn.Module]) -> dict[str, dict[str, Tensor]] | None:
        return None

    def opened(self, kept: Kept, parts: Mapping[int, Tree], num_ranks: int) -> dict[str, Tree]:
        return joined_parts(parts, num_ranks)

    def laid_out(self, kept: Kept, state: Mapping[str, Tree]) -> dict[str, Tree]:
        return dict(state)


def joined_parts(parts: Mapping[int, Tree], num_ranks: int) -> dict[str, Tree]:
    """Return the states of all ranks as those of one, by name. Raises IncompatibleState."""
    try:
        ordered = [parts[rank] for rank in range(num_ranks)]
        return {name: _joined([part[name] for part in ordered]) for name in ordered[0]}
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        problem = f"the parts of {num_ranks} ranks cannot be joined"
        raise IncompatibleState(f"{problem}: {error!r}") from error


def _joined(trees: Sequence[Tree]) -> Tree:
    """Join the rows; of everything else, take that of rank 0."""
    first = trees[0]
    if is_rows(first):
        whole = torch.cat([each[ROWS] for each in trees])
        if list(whole.shape) != list(first[SHAPE]):
            raise ValueError(f"got the shape {list(whole.shape)} for {list(first[SHAPE])}")
        return whole
    if isinstance(first, Mapping):
        return {key: _joined([each[key] for each in trees]) for key in first}
    if isinstance(first, list | tuple):
        return type(first)(_joined(each) for each in zip(*trees, strict=True))
    return first


def is_rows(tree: Tree) -> bool:
    return isinstance(tree, Mapping) and tree.keys() == {ROWS, SHAPE}


def mapped(change: Callable[[Tree], Tree], tree: Tree) -> Tree:
    """Return the tree with its elements changed; a leaf as it is."""
    if isinstance(tree, Mapping):
        return {key: change(each) for key, each in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(change(each) for each in tree)
    return tree
