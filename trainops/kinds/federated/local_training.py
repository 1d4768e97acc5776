"""One client's training in one round: from the server's model, for some local epochs."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainops.kinds.federated.batches import order_of
from trainops.kinds.federated.clipping import clipped
from trainops.kinds.federated.context import FederatedContext
from trainops.kinds.federated.implementation import make_optimizer
from trainops.kinds.federated.metric_accumulation import MetricAccumulator
from trainops.kinds.federated.parameter_layout import Buffers
from trainops.kinds.federated.private import Noise, NoisyGradients
from trainops.learning.shapes import require_same_shape
from trainops.runtime.errors import IncompatibleState, NonFiniteLoss
from trainops.runtime.job import StateDict


@dataclass(frozen=True, slots=True)
class Update:
    """What a client sends when its epochs are done.

    `vector` (P,) is how far its parameters moved, clipped under user-level privacy. `means` are of
    its examples as they were trained; empty where privacy is kept, since they are not noised.
    """

    vector: Tensor
    buffers: Buffers
    num_examples: int
    means: Mapping[str, float] = field(default_factory=dict)

    def to_state(self) -> StateDict:
        return {
            "vector": self.vector,
            "buffers": self.buffers,
            "num_examples": self.num_examples,
            "means": dict(self.means),
        }


class LocalTraining:
    """A client in training. `epoch` counts the local epochs that are done."""

    def __init__(
        self,
        context: FederatedContext,
        *,
        client: int,
        number: int,
        anchor: Tensor,
        buffers: Buffers,
    ) -> None:
        self.context, self.client, self.number = context, client, number
        self.anchor = anchor  # the server's parameters
        self.epoch = 0
        self.sums = context.new_mean_metrics()
        context.layout.put(anchor, buffers)
        self.row = context.layout.values.unsqueeze(0)  # (1, P), the model's own memory
        self.optimizer = make_optimizer(context.config, self.row)

    @property
    def examples(self) -> Tensor:
        return self.context.parts[self.client]

    def train(self, noise: str, step: int) -> None:
        """Train one local epoch; `noise` names the release, where each example's privacy is kept.

        Raises NonFiniteLoss, unless each client's privacy is kept.
        """
        self.context.model.train()
        if noise:
            self._train_privately(noise)
        else:
            self._train()
        self.epoch += 1
        self._require_finite(step)

    def updates(self) -> Iterator[tuple[int, Update]]:
        """Yield what the client sends."""
        yield self.client, self._update()

    def _update(self) -> Update:
        context = self.context
        vector, config = context.layout.values - self.anchor, context.config
        if config.has_users_noised:
            return Update(clipped(vector, config.privacy.max_update_norm), {}, len(self.examples))
        means = {} if config.is_private else self.sums.means()
        return Update(vector, context.layout.buffers(), len(self.examples), means)

    def state_dict(self) -> StateDict:
        state: StateDict = {
            "client": self.client,
            "epoch": self.epoch,
            "parameters": self.context.layout.vector(),
            "buffers": self.context.layout.buffers(),
            "optimizer": self.optimizer.state_dict(),
        }
        return state if self.context.config.is_private else state | {"sums": self.sums.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `check` has accepted."""
        self.context.layout.put(state["parameters"], state["buffers"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]
        if "sums" in state:
            self.sums.load_state_dict(state["sums"])

    def _train(self) -> None:
        context, config = self.context, self.context.config
        order = order_of(context, self.client, self.number, self.epoch)
        accumulator = MetricAccumulator(context.ingredients.measures, self.sums)
        loss_of = context.ingredients.loss
        inputs, targets = context.train.batch(order.to(context.device))  # in order, at one go
        batches = zip(*(each.split(config.batch_size) for each in (*inputs, targets)), strict=True)
        for *arguments, truth in batches:
            outputs = context.model(*arguments)
            loss = loss_of(outputs, truth)
            loss.backward()
            self._move()
            accumulator.add(loss, outputs, truth)
        accumulator.finish()

    def _train_privately(self, name: str) -> None:
        """Take steps on Poisson samples: each example is in each of them by its own chance.

        A step's noise follows from the release's name and from what it is added to: should the name
        miss something that the gradients follow from, two different ones still have two noises.
        """
        context, count = self.context, len(self.examples)
        numbers = context.secrets.numbers(name)
        rate, steps = context.sampling(self.client)
        noise = Noise(
            multiplier=context.noise_multiplier,
            max_grad_norm=context.config.privacy.max_grad_norm,
            expected_examples=rate * count,
        )
        gradients = NoisyGradients(context.model, context.ingredients.loss, noise)
        examples = self.examples.to(context.device)
        for step in range(steps):
            is_drawn = torch.from_numpy(numbers.random(count) < rate).to(context.device)
            gradients.fill(context.train, examples[is_drawn], partial(self._noise_of, name, step))
            self._move()

    def _noise_of(self, name: str, step: int, total: Tensor) -> np.random.Generator:
        return self.context.secrets.numbers_for(total, "step", name, step)

    def _move(self) -> None:
        """Move the model by the gradients that it has."""
        layout = self.context.layout
        gradients = layout.take_gradients()
        self.context.strategy.pull(gradients, layout.values, self.anchor)
        self.optimizer.move(self.row, gradients.unsqueeze(0))

    def _require_finite(self, step: int) -> None:
        """Raise NonFiniteLoss where training has failed.

        Not where each client's privacy is kept: that the run failed would tell of this client's
        data. It sends zeros then. (With noise in each step, numbers tell only what noise hides.)
        """
        if self.context.config.has_users_noised:
            return
        total = sum(self.sums.means().values()) if self.sums.count else 0.0
        if not math.isfinite(total):
            raise NonFiniteLoss(step, total)
        if not bool(torch.isfinite(self.row).all()):
            raise NonFiniteLoss(step, math.nan, "client's model")


def require_local_training(context: FederatedContext, client: int, state: Any) -> None:
    """Raise IncompatibleState unless a client's visit can take over this state."""
    own = {"client", "epoch", "parameters", "buffers", "optimizer"}
    own |= set() if context.config.is_private else {"sums"}
    if not isinstance(state, Mapping) or state.keys() != own:
        raise IncompatibleState(f"a client in training has {state!r:.80}, not {sorted(own)}")
    values, place = context.layout.values, "clients.visit"
    optimizer = make_optimizer(context.config, values.unsqueeze(0)).state_dict()
    require_same_shape(values, state["parameters"], f"{place}.parameters")
    require_same_shape(optimizer, state["optimizer"], f"{place}.optimizer")
    require_same_shape(context.layout.buffers(), state["buffers"], f"{place}.buffers")
    if (state["client"], type(state["epoch"])) != (client, int):
        raise IncompatibleState("the client in training is not the one that is next in the round")
    try:
        sums = context.new_mean_metrics()
        sums.load_state_dict(state.get("sums", sums.state_dict()))
    except (KeyError, TypeError, ValueError) as error:
        raise IncompatibleState(f"a client's sums cannot be read: {error!r}") from error


def read_update(state: Any, like: Tensor, buffers: Buffers, *, is_private: bool) -> Update:
    """Return the update that a state describes. Raises IncompatibleState."""
    try:
        update = Update(
            state["vector"].to(like.device),
            {name: each.to(like.device) for name, each in state["buffers"].items()},
            int(state["num_examples"]),
            {name: float(value) for name, value in state["means"].items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise IncompatibleState(f"a client's update cannot be read: {error!r}") from error
    require_same_shape(like, update.vector, "clients.vector")
    if update.buffers or not is_private:
        require_same_shape(buffers, update.buffers, "clients.buffers")
    return update
