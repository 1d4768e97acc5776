"""Which clients take part in which round: a function of the seed, the round and the secret."""

import math
from collections import Counter
from functools import cached_property, lru_cache
from itertools import accumulate

import torch

from trainops.kinds.federated.options import FederatedOptions
from trainops.kinds.federated.rng import Secrets, generator


class RoundSchedule:
    """The clients of every round, and how many client epochs there are before it.

    Without user-level privacy a round has a fixed number of clients. With it, each client joins by
    itself with the fraction as its chance, as the accounting assumes: the number varies, and may
    be zero.
    """

    def __init__(self, config: FederatedOptions, num_clients: int, secrets: Secrets) -> None:
        self.config, self.num_clients, self._secrets = config, num_clients, secrets
        self.is_by_chance = config.has_users_noised and config.fraction < 1
        self._chosen = lru_cache(maxsize=8)(self._choose)

    def chosen(self, number: int) -> tuple[int, ...]:
        """Return the clients of round `number` (from 1), in order."""
        return self._chosen(number)

    def steps_before(self, number: int) -> int:
        """Return the client epochs of all rounds before this one."""
        if self.is_by_chance:
            return self._sums[number - 1]
        return (number - 1) * self.clients_per_round * self.config.local_epochs

    @property
    def total_steps(self) -> int:
        return self.steps_before(self.config.rounds + 1)

    @property
    def clients_per_round(self) -> int:
        """The number of clients in a round; where chance decides, the expected one."""
        wanted = math.ceil(round(self.config.fraction * self.num_clients, 6))  # 0.07 * 100 > 7
        return max(wanted, self.config.min_clients)

    def visits(self) -> list[int]:
        """Return in how many rounds each client takes part; where chance decides, may do so."""
        if self.is_by_chance or self.clients_per_round == self.num_clients:
            return [self.config.rounds] * self.num_clients
        rounds = range(1, self.config.rounds + 1)
        counted = Counter(client for number in rounds for client in self._choose(number))
        return [counted[client] for client in range(self.num_clients)]

    @cached_property
    def _sums(self) -> list[int]:
        epochs = self.config.local_epochs
        counts = (len(self._choose(number)) for number in range(1, self.config.rounds + 1))
        return [0, *(epochs * each for each in accumulate(counts))]

    def _choose(self, number: int) -> tuple[int, ...]:
        if self.is_by_chance:
            drawn = self._secrets.numbers("clients", number).random(self.num_clients)
            return tuple((drawn < self.config.fraction).nonzero()[0].tolist())
        if self.clients_per_round == self.num_clients:
            return tuple(range(self.num_clients))
        shuffled = torch.randperm(
            self.num_clients, generator=generator(self.config.seed, "clients", number)
        )
        return tuple(sorted(shuffled[: self.clients_per_round].tolist()))
