"""The clients of a round in training all at once: their models are the rows of one matrix.

What each client computes is what it computes by itself, but for the last bits: sums are taken in
another order. So a run whose clients train together is repeated and resumed exactly by one whose
clients train together, and by no other.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from trainops.kinds.federated.batches import Batches, batches_of
from trainops.kinds.federated.clipping import clipped
from trainops.kinds.federated.context import FederatedContext
from trainops.kinds.federated.implementation import make_optimizer
from trainops.kinds.federated.local_training import Update
from trainops.kinds.federated.metric_accumulation import BatchedMetricAccumulator
from trainops.kinds.federated.plain import Models
from trainops.learning.shapes import require_same_shape
from trainops.runtime.errors import IncompatibleState, InputError, NonFiniteLoss
from trainops.runtime.job import StateDict

# Of a loss, judged at once: examples, of which one alone makes a difference, and numbers.
JUDGED_EXAMPLES, JUDGED_NUMBERS = 1024, 2**22


class BatchedClients:
    """All clients of a round in training. `epoch` counts the local epochs that all have done."""

    def __init__(
        self, context: FederatedContext, *, clients: Sequence[int], number: int, anchor: Tensor
    ) -> None:
        self.context, self.number, self.anchor = context, number, anchor
        self.chosen, self.client = tuple(clients), clients[0]
        # Who has most examples is first, so that those who still train are always the first rows.
        self.order = sorted(clients, key=lambda each: -context.sizes[each])
        self.epoch = 0
        self.rows = anchor.repeat(len(clients), 1)  # (C, P)
        self.optimizer = make_optimizer(context.config, self.rows)
        num_sums = 1 + len(context.ingredients.measures)
        self.sums = torch.zeros(len(clients), num_sums, dtype=torch.float64, device=anchor.device)

    @torch.no_grad()
    def train(self, noise: str, step: int) -> None:
        """Train one local epoch of every client. `noise` is none: examples are not private.

        Raises NonFiniteLoss, unless each client's privacy is kept.
        """
        self.context.model.train()
        models_of = cache(lambda count: self.context.many_models(self.rows[:count]))
        for batches in batches_of(self.context, self.order, self.number, self.epoch):
            self._move(batches, models_of)
        self.epoch += 1
        if self.context.config.has_users_noised:
            return  # that the run failed would tell of a client's data; what is no number is zeros
        if not math.isfinite(total := self.sums.sum().item()):
            raise NonFiniteLoss(step, total)
        if not math.isfinite(self.rows.sum(dtype=torch.float64).item()):
            raise NonFiniteLoss(step, math.nan, "client's model")

    def updates(self) -> Iterator[tuple[int, Update]]:
        """Yield what each client sends, in the round's order."""
        config, vectors = self.context.config, (self.rows - self.anchor).unbind()
        names = ("loss", *self.context.ingredients.measures)
        places = {client: place for place, client in enumerate(self.order)}
        sums = self.sums.tolist()
        for client in self.chosen:
            place, count = places[client], self.context.sizes[client]
            vector = vectors[place]
            if config.has_users_noised:
                yield client, Update(clipped(vector, config.privacy.max_update_norm), {}, count)
                continue
            means = (each / (count * self.epoch) for each in sums[place])
            yield client, Update(vector, {}, count, dict(zip(names, means, strict=True)))

    def state_dict(self) -> StateDict:
        """Return the rows in the order of `clients`, and what each one's optimizer remembers.

        Under user-level privacy it does not say who they are.
        """
        config = self.context.config
        return {
            "client": self.client,
            **({} if config.has_users_noised else {"clients": list(self.order)}),
            "epoch": self.epoch,
            "parameters": self.rows,
            "optimizer": self.optimizer.state_dict(),
            **({} if config.is_private else {"sums": self.sums}),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `check` has accepted."""
        self.rows = state["parameters"].to(self.rows.device, copy=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]
        if "sums" in state:
            self.sums = state["sums"].to(self.sums.device, copy=True)

    def check(self, state: Any) -> None:
        """Raise IncompatibleState unless load_state_dict would take all of it."""
        own = self.state_dict()
        require_same_shape(own, state, "clients.visit")
        for name in ("clients", "client"):
            if state.get(name) != own.get(name):
                raise IncompatibleState(f"{name} in training together: not those of the round")
        if type(state["epoch"]) is not int:
            raise IncompatibleState(f"clients.visit.epoch is {state['epoch']!r:.80}")

    def _move(self, batches: Batches, models_of: Callable[[int], Models]) -> None:
        """Move the clients that have these batches by one after the other."""
        context, count = self.context, batches.indices.shape[1]
        rows, models = self.rows[:count], models_of(count)
        inputs, targets = context.train.batch(batches.indices)  # (S, n, B, ...), at one go
        alike = (*inputs, targets, batches.shares, batches.counts)
        accumulator = BatchedMetricAccumulator(context.ingredients.measures, self.sums[:count])
        for *arguments, truth, share, counts in zip(*(e.unbind() for e in alike), strict=True):
            outputs, pull = models(tuple(arguments))
            losses, cotangents = context.losses(outputs, truth, share)
            gradients = pull(cotangents)
            context.strategy.pull(gradients, rows, self.anchor)
            self.optimizer.move(rows, gradients)
            accumulator.add(losses, outputs, truth, counts)
        accumulator.finish()


def require_stackable(context: FederatedContext) -> None:
    """Refuse a model that cannot be trained for many clients at once. Raises InputError."""
    mixing = [
        name
        for name, each in context.model.named_modules()
        if isinstance(each, nn.modules.batchnorm._BatchNorm)
    ]
    if kept := [*mixing, *context.layout.buffers()]:
        problem = (
            f"got true; batch normalisation and buffers ({', '.join(kept[:5])}) change while "
            "training; allowed: false, or a model without them (the built-in recipes: "
            "parameters.norm = group)"
        )
        raise InputError({"batched_clients": problem})
    some = torch.arange(min(context.config.batch_size, len(context.train)))
    inputs, targets = context.train.batch(some.unsqueeze(0))
    rows = context.layout.vector().unsqueeze(0)
    context.model.eval()  # draws nothing
    try:
        outputs, pull = context.many_models(rows)(inputs)
        _, cotangents = context.losses(outputs, targets, rows.new_ones(1, len(some)))
        pull(cotangents)
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        problem = f"got true; this model cannot be stacked ({reason}); allowed: false"
        raise InputError({"batched_clients": problem}) from error
    _require_means(context, outputs.flatten(0, 1))


def _require_means(context: FederatedContext, outputs: Tensor) -> None:
    """Refuse a loss of a batch that is no mean of its examples' own, for any of the targets.

    Whatever the outputs are: ones like these (N, ...), for as many targets as there are. Raises
    InputError.
    """
    count = max(1, min(JUDGED_EXAMPLES, JUDGED_NUMBERS // outputs[0].numel()))
    outputs = outputs.repeat(-(-count // len(outputs)), *[1] * (outputs.ndim - 1))
    apart = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0))
    outputs = outputs + apart.to(outputs)  # a new model's may be all alike, and hide weights
    for truth in context.train.targets.split(count):
        some = outputs[: len(truth)]
        one = some.new_ones(1, len(truth))
        losses, _ = context.losses(some.unsqueeze(0), truth.unsqueeze(0), one)
        mean, whole = losses.mean(), context.ingredients.loss(some, truth)
        if not torch.allclose(mean, whole, rtol=1e-4, atol=1e-6, equal_nan=True):
            problem = (
                f"got true; the loss of {len(truth)} examples is {whole:.6g}, the mean of their "
                f"own {mean:.6g} (weighted classes? targets that are ignored?); allowed: false"
            )
            raise InputError({"batched_clients": problem})
