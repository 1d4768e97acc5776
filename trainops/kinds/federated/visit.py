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
from trainops.kinds.federated.gathering import Gathering
from trainops.kinds.federated.layout import Buffers
from trainops.kinds.federated.optimizer import ClientOptimizer
from trainops.kinds.federated.private import Noise, NoisyGradients
from trainops.kinds.federated.workshop import Workshop
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


class Visit:
    """A client in training. `epoch` counts the local epochs that are done."""

    def __init__(
        self, workshop: Workshop, *, client: int, number: int, anchor: Tensor, buffers: Buffers
    ) -> None:
        self.workshop, self.client, self.number = workshop, client, number
        self.anchor = anchor  # the server's parameters
        self.epoch = 0
        self.sums = workshop.new_averages()
        workshop.layout.put(anchor, buffers)
        self.row = workshop.layout.values.unsqueeze(0)  # (1, P), the model's own memory
        self.optimizer = ClientOptimizer(workshop.config, self.row)

    @property
    def examples(self) -> Tensor:
        return self.workshop.parts[self.client]

    def train(self, noise: str, step: int) -> None:
        """Train one local epoch; `noise` names the release, where each example's privacy is kept.

        Raises NonFiniteLoss, unless each client's privacy is kept.
        """
        self.workshop.model.train()
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
        workshop = self.workshop
        vector, config = workshop.layout.values - self.anchor, workshop.config
        if config.has_users_noised:
            return Update(clipped(vector, config.privacy.max_update_norm), {}, len(self.examples))
        means = {} if config.is_private else self.sums.means()
        return Update(vector, workshop.layout.buffers(), len(self.examples), means)

    def state_dict(self) -> StateDict:
        state: StateDict = {
            "client": self.client,
            "epoch": self.epoch,
            "parameters": self.workshop.layout.vector(),
            "buffers": self.workshop.layout.buffers(),
            "optimizer": self.optimizer.state_dict(),
        }
        return (
            state if self.workshop.config.is_private else state | {"sums": self.sums.state_dict()}
        )

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `check` has accepted."""
        self.workshop.layout.put(state["parameters"], state["buffers"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]
        if "sums" in state:
            self.sums.load_state_dict(state["sums"])

    def _train(self) -> None:
        workshop, config = self.workshop, self.workshop.config
        order = order_of(workshop, self.client, self.number, self.epoch)
        gathering = Gathering(workshop.ingredients.measures, self.sums)
        loss_of = workshop.ingredients.loss
        inputs, targets = workshop.train.batch(order.to(workshop.device))  # in order, at one go
        batches = zip(*(each.split(config.batch_size) for each in (*inputs, targets)), strict=True)
        for *arguments, truth in batches:
            outputs = workshop.model(*arguments)
            loss = loss_of(outputs, truth)
            loss.backward()
            self._move()
            gathering.add(loss, outputs, truth)
        gathering.finish()

    def _train_privately(self, name: str) -> None:
        """Take steps on Poisson samples: each example is in each of them by its own chance.

        A step's noise follows from the release's name and from what it is added to: should the name
        miss something that the gradients follow from, two different ones still have two noises.
        """
        workshop, count = self.workshop, len(self.examples)
        numbers = workshop.secrets.numbers(name)
        rate, steps = workshop.sampling(self.client)
        noise = Noise(
            multiplier=workshop.noise_multiplier,
            max_grad_norm=workshop.config.privacy.max_grad_norm,
            expected_examples=rate * count,
        )
        gradients = NoisyGradients(workshop.model, workshop.ingredients.loss, noise)
        examples = self.examples.to(workshop.device)
        for step in range(steps):
            is_drawn = torch.from_numpy(numbers.random(count) < rate).to(workshop.device)
            gradients.fill(workshop.train, examples[is_drawn], partial(self._noise_of, name, step))
            self._move()

    def _noise_of(self, name: str, step: int, total: Tensor) -> np.random.Generator:
        return self.workshop.secrets.numbers_for(total, "step", name, step)

    def _move(self) -> None:
        """Move the model by the gradients that it has."""
        layout = self.workshop.layout
        gradients = layout.take_gradients()
        self.workshop.strategy.pull(gradients, layout.values, self.anchor)
        self.optimizer.move(self.row, gradients.unsqueeze(0))

    def _require_finite(self, step: int) -> None:
        """Raise NonFiniteLoss where training has failed.

        Not where each client's privacy is kept: that the run failed would tell of this client's
        data. It sends zeros then. (With noise in each step, numbers tell only what noise hides.)
        """
        if self.workshop.config.has_users_noised:
            return
        total = sum(self.sums.means().values()) if self.sums.count else 0.0
        if not math.isfinite(total):
            raise NonFiniteLoss(step, total)
        if not bool(torch.isfinite(self.row).all()):
            raise NonFiniteLoss(step, math.nan, "client's model")


def require_visit(workshop: Workshop, client: int, state: Any) -> None:
    """Raise IncompatibleState unless a client's visit can take over this state."""
    own = {"client", "epoch", "parameters", "buffers", "optimizer"}
    own |= set() if workshop.config.is_private else {"sums"}
    if not isinstance(state, Mapping) or state.keys() != own:
        raise IncompatibleState(f"a client in training has {state!r:.80}, not {sorted(own)}")
    values, place = workshop.layout.values, "clients.visit"
    optimizer = ClientOptimizer(workshop.config, values.unsqueeze(0)).state_dict()
    require_same_shape(values, state["parameters"], f"{place}.parameters")
    require_same_shape(optimizer, state["optimizer"], f"{place}.optimizer")
    require_same_shape(workshop.layout.buffers(), state["buffers"], f"{place}.buffers")
    if (state["client"], type(state["epoch"])) != (client, int):
        raise IncompatibleState("the client in training is not the one that is next in the round")
    try:
        sums = workshop.new_averages()
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
