"""What the ranks of a run do together: sums over all ranks, and replicas of one model."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from trainops.kinds.loop.metric_states import has_lists
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.run import Run
from trainops.runtime.errors import IncompatibleState, InputError

T = TypeVar("T")
Number: TypeAlias = float | Tensor  # a tensor is float64, without dimensions


class Reductions:
    """Sums and decisions over the ranks of a run; of one rank alone, its own.

    Every method must be called in all ranks, equally often. Sums over ranks stay on the device: a
    GPU is not waited for.
    """

    def __init__(self, run: Run) -> None:
        self.rank, self.num_ranks, self.device = run.rank, run.num_ranks, run.device
        self.local_rank, self.num_nodes = run.local_rank, run.num_nodes

    def mean(self, number: Number) -> Number:
        return self.sums([number])[0] / self.num_ranks

    def sums(self, numbers: Sequence[Number]) -> list[Number]:
        """Return the numbers added up over the ranks, each of which has as many."""
        if self.num_ranks == 1 or not numbers:
            return list(numbers)
        made = [torch.as_tensor(each, dtype=torch.float64) for each in numbers]
        together = torch.stack([each.to(self.device, non_blocking=True) for each in made])
        distributed.all_reduce(together)
        return list(together.unbind())

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Return which flags are set in one rank at least. A GPU is waited for."""
        if self.num_ranks == 1 or not flags:
            return list(flags)
        found = torch.tensor(flags, dtype=torch.int32, device=self.device)
        distributed.all_reduce(found, op=distributed.ReduceOp.MAX)
        return [bool(each) for each in found.tolist()]

    def require_lists(
        self, metrics: Mapping[str, Any], what: str, loaders: Iterable[Passes]
    ) -> set[str]:
        """Return the names of the torchmetrics that a rank has updated with batches of `what`.

        Those with lists add them up over the ranks only where each rank has some. Raises
        InputError for others; IncompatibleState where other ranks have taken batches of the pass.
        """
        flags = []
        for each in metrics.values():
            is_updated = bool(each.update_called)
            flags += [is_updated, not is_updated and has_lists(each)]
        found = self.any(flags)
        updated = {name for name, is_used in zip(metrics, found[::2], strict=True) if is_used}
        for name, lacks in zip(metrics, found[1::2], strict=True):
            if not lacks or name not in updated:
                continue
            problem = f"the metric {name!r} has seen no batch of the {what} in a process"
            if any(each.is_of_other_ranks for each in loaders):
                allowed = "as many processes as before, or another checkpoint"
                raise IncompatibleState(f"{problem}; allowed: {allowed}")
            allowed = "as many batches as processes, or metrics without lists"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        return updated

    def union(self, names: Iterable[Any]) -> list[Any]:
        """Return what the ranks name, each once and in the same order in all ranks."""
        return list(dict.fromkeys(each for given in self.gathered(list(names)) for each in given))

    def gathered(self, thing: T) -> list[T]:
        """Return what each rank gives, that of rank 0 first."""
        if self.num_ranks == 1:
            return [thing]
        of_ranks: list[Any] = [None] * self.num_ranks
        distributed.all_gather_object(of_ranks, thing)
        return of_ranks

    def is_counted(self, loader: Passes, counted: int = 0) -> bool:
        """Whether the batch of this rank is a new one, after the first `counted` of the pass."""
        return loader.is_counted(self.rank) and loader.numbers[self.rank] >= counted


class Replicas(Reductions):
    """The replica of this rank, and what it has in common with the others; perhaps the only one.

    `step` is the training step of `module` as a forward pass, wrapped by `Run.wrap`.
    """

    def __init__(self, run: Run, module: nn.Module, step: nn.Module) -> None:
        super().__init__(run)
        self._module, self.step = module, step

    def reducing(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Let gradients be averaged over the ranks after the last batch of a window only."""
        if is_last or not isinstance(self.step, DistributedDataParallel):
            return nullcontext()
        return self.step.no_sync()

    def shares(self, counts: Sequence[int]) -> list[Number]:
        """Return the weights of the batches of a window, from their numbers of examples.

        The mean over the ranks of what is weighted by them is the mean over all examples that the
        ranks have in their windows.
        """
        (total,) = self.sums([sum(counts)])
        return [count * self.num_ranks / total for count in counts]

    def share_buffers(self) -> None:
        """Give all replicas the buffers of rank 0, such as the running means of a batch norm."""
        self._share(self._module.buffers())

    def share_all(self) -> None:
        """Give all replicas the parameters and buffers of rank 0."""
        self._share([*self._module.parameters(), *self._module.buffers()])

    def _share(self, tensors: Iterable[Tensor]) -> None:
        if self.num_ranks == 1:
            return
        for each in tensors:
            shared = each.detach().contiguous()
            distributed.broadcast(shared, 0)
            each.detach().copy_(shared)
