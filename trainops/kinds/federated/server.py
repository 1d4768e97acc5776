"""The server: its model, what the round's clients sent, and the best model so far."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from trainops.kinds.federated.context import FederatedContext
from trainops.kinds.federated.fast.batched_clients import BatchedClients
from trainops.kinds.federated.limits import NUM_FOLLOWED
from trainops.kinds.federated.local_training import (
    LocalTraining,
    Update,
    read_update,
    require_local_training,
)
from trainops.kinds.federated.masking import mask, unmask
from trainops.kinds.federated.parameter_layout import Buffers, average_of
from trainops.kinds.federated.progress import FederatedProgress
from trainops.kinds.federated.releases import Release
from trainops.kinds.federated.rng import begin_streams, normal
from trainops.learning.shapes import require_same_shape
from trainops.media.names import CLIENTS
from trainops.runtime.errors import IncompatibleState, NonFiniteLoss
from trainops.runtime.job import StateDict


class FederatedServer:
    """Holds the model between rounds, and within one what clients sent, in their order."""

    def __init__(self, context: FederatedContext) -> None:
        self.context = context
        self.parameters = context.layout.vector()
        self.buffers = context.layout.buffers()
        self.updates: dict[int, Update] = {}
        self.best: tuple[Tensor, Buffers] | None = None
        # Each client's newest, and how far it moved the model, where they may be published.
        self.means: dict[int, dict[str, float]] = {}
        self._masked: dict[int, Any] = {}  # by their place in the round: nobody is named

    @property
    def is_masked(self) -> bool:
        """Whether what clients send must not be read out of a checkpoint."""
        return self.context.config.has_users_noised

    def receive(self, client: int, number: int) -> LocalTraining | BatchedClients:
        """Let a client, or all of the round at once, begin with the server's model."""
        if self.context.config.batched_clients:
            chosen = self.context.schedule.chosen(number)
            return BatchedClients(
                self.context, clients=chosen, number=number, anchor=self.parameters
            )
        return LocalTraining(
            self.context, client=client, number=number, anchor=self.parameters,
            buffers=self.buffers,
        )  # fmt: skip

    def begin_streams(self, *purpose: object) -> None:
        """Start the random streams anew, so that no client's numbers follow from another's."""
        config, secrets = self.context.config, self.context.secrets
        begin_streams(config.seed, *purpose, secrets=secrets if config.is_private else None)

    def train(self, local_training: LocalTraining | BatchedClients, noise: str, step: int) -> None:
        """Train a local epoch. Raises NonFiniteLoss.

        How far it went in the random streams (a number for each unit and example, with dropout)
        tells how many examples there were, and streams are in checkpoints: where that is private,
        the next epoch has streams of its own.
        """
        local_training.train(noise, step)
        if self.context.config.is_private:
            self.begin_streams(
                "client", local_training.number, local_training.client, local_training.epoch
            )

    def identity(self) -> str:
        """Return a name for the model that clients begin with."""
        frozen = self.context.layout.frozen
        return self.context.secrets.identity("given", [self.parameters, self.buffers, frozen])

    def take(self, client: int, update: Update) -> None:
        """Keep what a client sent until its round is done."""
        self.updates[client] = update
        if update.means:
            means = self.context.in_units(update.means, "train")
            self.means[client] = self.means.get(client, {}) | means

    def sum_of_updates(self) -> Tensor:
        """Return the sum (P,) of what clients sent, in the order of the clients."""
        total = torch.zeros_like(self.parameters)
        for client in sorted(self.updates):
            total += self.updates[client].vector
        return total

    def finish_round(self, number: int, release: Release | None, step: int) -> dict[str, float]:
        """Make the next model of what the clients sent; return what they measured.

        `release` is the noise of the round, under user-level privacy. Raises NonFiniteLoss.
        """
        before = self.buffers
        update = self._noised(release) if release else self._combined()
        self.parameters = self.context.strategy.move(self.parameters, update, number)
        self._require_finite(before, step)
        metrics = self._means()
        self.updates, self._masked = {}, {}
        self.context.layout.put(self.parameters, self.buffers)
        return metrics

    def keep_best(self) -> None:
        """Remember the model as it is now."""
        copies = {name: each.clone() for name, each in self.buffers.items()}
        self.best = self.parameters.clone(), copies

    def lines(self) -> dict[str, dict[str, float]]:
        """Return each client's newest means, by its number."""
        return {str(client): dict(means) for client, means in sorted(self.means.items())}

    def figures_of(self, clients: Iterable[int]) -> dict[str, float]:
        """Return the newest means of those of these clients that have curves of their own."""
        return {
            f"{CLIENTS}{client}/{name}": value
            for client in clients
            if client < NUM_FOLLOWED
            for name, value in self.means.get(client, {}).items()
        }

    def state_dict(
        self, local_training: LocalTraining | BatchedClients | None, number: int
    ) -> StateDict:
        """Return what a checkpoint holds of the round of this number."""
        layout, strategy = self.context.layout, self.context.strategy
        visiting = (
            self.visiting(local_training)
            if local_training is not None and local_training.epoch
            else None
        )
        return {
            "model": layout.state_dict(self.parameters, self.buffers),
            "server": dict(strategy.state),
            "clients": {"done": self._done(number), "visit": visiting},
            **({"best_model": layout.state_dict(*self.best)} if self.best else {}),
        }

    def check(self, state: StateDict, progress: FederatedProgress) -> StateDict | None:
        """Return the state of the client in training, if there is one.

        Raises IncompatibleState unless load_state_dict would take all of it.
        """
        own = self.context.layout.state_dict(self.parameters, self.buffers)
        require_same_shape(own, state["model"], "model")
        require_same_shape(self.context.strategy.state, state["server"], "server")
        if ("best_model" in state) != (progress.best.metric is not None):
            raise IncompatibleState(
                "the best model is there without its metric, or the other way round"
            )
        if "best_model" in state:
            require_same_shape(own, state["best_model"], "best_model")
        self._read_updates(state, progress)
        self._read_means(state)
        visiting = self._read_visit(state, progress)
        if (visiting is None) != (progress.epoch == 0):
            raise IncompatibleState(
                "a client in training is there without its epochs, or the other way round"
            )
        if visiting is not None and progress.client is not None:
            if self.context.config.batched_clients:
                BatchedClients(
                    self.context, clients=progress.chosen, number=progress.number,
                    anchor=self.parameters,
                ).check(visiting)  # fmt: skip
            else:
                require_local_training(self.context, progress.client, visiting)
            if visiting["epoch"] != progress.epoch:
                raise IncompatibleState(
                    f"a client is in epoch {visiting['epoch']}, not {progress.epoch}"
                )
        return visiting

    def load_state_dict(
        self, state: StateDict, progress: FederatedProgress, visiting: StateDict | None
    ) -> LocalTraining | BatchedClients | None:
        """Take over what `check` has accepted, and return the client in training."""
        layout = self.context.layout
        layout.freeze(state["model"])
        self.parameters, self.buffers = layout.taken_apart(state["model"])
        self.context.strategy.state = {
            name: each.detach().to(self.parameters.device, copy=True)
            for name, each in state["server"].items()
        }
        self.best = layout.taken_apart(state["best_model"]) if "best_model" in state else None
        self.updates = self._read_updates(state, progress)
        self.means = self._read_means(state)
        if visiting is None or progress.client is None:
            layout.put(self.parameters, self.buffers)
            return None
        local_training = self.receive(progress.client, progress.number)
        local_training.load_state_dict(visiting)
        return local_training

    def _combined(self) -> Tensor:
        """Combine updates by numbers of examples; buffers are averaged alike."""
        updates = [self.updates[client] for client in sorted(self.updates)]
        weights = torch.tensor([each.num_examples for each in updates], dtype=torch.float64)
        weights = weights.to(self.parameters.device)
        if self.buffers:
            buffers = [each.buffers for each in updates]
            self.buffers = average_of(buffers, weights, self.context.strategy.combine)
        vectors = torch.stack([each.vector for each in updates])
        norms = torch.linalg.vector_norm(vectors, dim=1).tolist()
        for client, norm in zip(sorted(self.updates), norms, strict=True):
            if client in self.means:  # where figures of single clients may be published
                self.means[client]["update_norm"] = norm
        return self.context.strategy.combine(vectors, weights)

    def _require_finite(self, before: Buffers, step: int) -> None:
        """Raise NonFiniteLoss unless the model is finite, apart from buffers that were not."""
        if not bool(torch.isfinite(self.parameters).all()):
            raise NonFiniteLoss(step, math.nan, "server's model")
        for name, each in self.buffers.items():
            if bool(torch.isfinite(before[name]).all()) and not bool(torch.isfinite(each).all()):
                raise NonFiniteLoss(step, math.nan, f"server's {name}")

    def _noised(self, release: Release) -> Tensor:
        """Sum, add noise, and divide by the expected number of clients.

        McMahan et al., "Learning differentially private recurrent language models" (2018),
        algorithm 1, with the estimator of a fixed denominator and equal weights.
        """
        config, total = self.context.config, self.sum_of_updates()
        deviation = release.noise_multiplier * config.privacy.max_update_norm
        noised = total + normal(self.context.secrets.numbers(release.noise), total, deviation)
        return noised / (config.fraction * self.context.schedule.num_clients)

    def _means(self) -> dict[str, float]:
        """Return the clients' means, weighted by their examples, where they are reported."""
        updates = [each for each in self.updates.values() if each.means]
        total = sum(each.num_examples for each in updates)
        names = updates[0].means if updates else {}
        weighted = {
            name: sum(each.means[name] * each.num_examples for each in updates) / total
            for name in names
        }
        return self.context.in_units(weighted, "train")

    def _done(self, number: int) -> dict[str, Any]:
        if not self.is_masked:
            return {str(client): each.to_state() for client, each in self.updates.items()}
        secrets = self.context.secrets
        for place, (client, each) in enumerate(self.updates.items()):
            if place not in self._masked:
                self._masked[place] = mask({"vector": each.vector}, secrets, number, client)
        return {str(place): each for place, each in self._masked.items()}

    def visiting(self, local_training: LocalTraining | BatchedClients) -> Any:
        """Return the state of a client in training, masked where it must be.

        There it is named by its place among those that sent something.
        """
        state = local_training.state_dict()
        if not self.is_masked:
            return state
        unnamed = state | {"client": len(self.updates)}
        return mask(unnamed, self.context.secrets, local_training.number, local_training.client)

    def visited(self, state: Any, client: int, number: int) -> StateDict:
        """Return what `visiting` was made of in that round. Raises IncompatibleState."""
        visiting = self._unmasked(state, number, client)
        if not isinstance(visiting, dict):
            raise IncompatibleState(f"a client in training has {visiting!r:.80}")
        return visiting | {"client": client} if self.is_masked else visiting

    def _read_visit(self, state: StateDict, progress: FederatedProgress) -> StateDict | None:
        """Return the state of the client in training; masked, it is named by its place."""
        kept = state["clients"].get("visit")
        visiting: StateDict | None = self._unmasked(kept, progress.number, progress.client)
        if visiting is None or not self.is_masked:
            return visiting
        if visiting.get("client") != len(progress.taken):
            raise IncompatibleState(f"client {progress.done + 1} of the round is not in training")
        return visiting | {"client": progress.client}

    def _unmasked(self, value: Any, number: int, client: int | None) -> Any:
        return unmask(value, self.context.secrets, number, client) if self.is_masked else value

    def _read_updates(self, state: StateDict, progress: FederatedProgress) -> dict[int, Update]:
        """Return what clients sent. Raises IncompatibleState."""
        try:
            done = {int(client): each for client, each in state["clients"]["done"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the clients cannot be read: {error!r}") from error
        if self.is_masked and list(done) == list(range(len(progress.taken))):
            done = {progress.taken[place]: each for place, each in done.items()}
        if list(done) != list(progress.taken):
            raise IncompatibleState(
                f"{len(done)} clients are done, and they are not the first "
                f"{len(progress.taken)} of the round that it did not go on without"
            )
        if self.is_masked:
            done = {
                client: {
                    **self._unmasked(each, progress.number, client), "buffers": {}, "means": {},
                    "num_examples": self.context.sizes[client],
                }
                for client, each in done.items()
            }  # fmt: skip
        return {
            client: read_update(each, self.parameters, self.buffers, is_private=self.is_masked)
            for client, each in done.items()
        }

    def _read_means(self, state: StateDict) -> dict[int, dict[str, float]]:
        try:
            lines: dict[str, dict[str, float]] = state["state"]["clients"]
            return {int(client): dict(means) for client, means in lines.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the clients' means cannot be read: {error!r}") from error
