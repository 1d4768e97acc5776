"""What has been spent of each client's privacy, kept so that asking costs microseconds."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from trainops.engines.federated.accounting import Setting, Spent, epsilon
from trainops.engines.spending import LEVELS, Entry, Level

Measure = Callable[[Spent, float], float]  # steps by setting, delta -> epsilon
EVERYONE = None  # in the place of a client: releases that concern all of them


class Account:
    """Sums of entries, by level and client; the same whatever the order that they came in.

    A client's steps count against that client alone: nobody else's data was in them. The worst
    client's epsilon is the account's. Sample and user level are added, an upper bound for a
    member whose example and whose whole client both take part.
    """

    def __init__(self, delta: float, measure: Measure = epsilon) -> None:
        self.delta, self.measure = delta, measure
        self._spent: dict[tuple[Level, int | None], dict[Setting, int]] = defaultdict(dict)
        self._carried: dict[Level, float] = dict.fromkeys(LEVELS, 0.0)
        self._known: dict[tuple[Level, int | None], float] = {}  # epsilons that still hold

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._carried[entry.level] += entry.carried
            spent = self._spent[entry.level, entry.client]
            setting = (entry.noise_multiplier, entry.sample_rate)
            spent[setting] = spent.get(setting, 0) + entry.steps
            self._forget(entry.level, entry.client)

    def copy(self) -> "Account":
        other = Account(self.delta, self.measure)
        other._spent |= {who: dict(spent) for who, spent in self._spent.items()}
        other._carried, other._known = dict(self._carried), dict(self._known)
        return other

    @property
    def epsilon(self) -> float:
        """The worst client's, of both levels together; 0 where nothing was spent."""
        return sum(self.of(level) for level in LEVELS)

    def of(self, level: Level) -> float:
        """Return the worst client's epsilon at one level."""
        clients = [who for at, who in list(self._spent) if at == level] or [EVERYONE]
        return self._carried[level] + max(self._client(level, who) for who in clients)

    def by_client(self, level: Level) -> dict[int, float]:
        """Return each client's epsilon at one level, of those with entries of their own."""
        clients = sorted(who for at, who in self._spent if at == level and who is not None)
        return {who: self._carried[level] + self._client(level, who) for who in clients}

    def with_entry(self, entry: Entry) -> float:
        """Return what `epsilon` would be with one entry more."""
        other = self.copy()
        other.add([entry])
        return other.epsilon

    def _client(self, level: Level, client: int | None) -> float:
        if (level, client) not in self._known:
            spent = dict(self._spent.get((level, client), {}))
            if client is not EVERYONE:
                for setting, steps in self._spent.get((level, EVERYONE), {}).items():
                    spent[setting] = spent.get(setting, 0) + steps
            self._known[level, client] = self.measure(spent, self.delta)
        return self._known[level, client]

    def _forget(self, level: Level, client: int | None) -> None:
        if client is EVERYONE:
            self._known = {who: value for who, value in self._known.items() if who[0] != level}
        else:
            self._known.pop((level, client), None)


def rounds_left(
    account: Account, each: Iterable[Entry], target: float, most: int, share: float = 1.0
) -> int:
    """Return how many more rounds, each of these entries, fit into a budget; at most `most`.

    A client's own entries come in so large a share of the rounds.
    """
    entries = list(each)

    def steps(entry: Entry, number: int) -> int:
        return math.ceil(number * entry.steps * (1.0 if entry.client is EVERYONE else share))

    def fits(number: int) -> bool:
        future = account.copy()
        future.add(replace(entry, steps=steps(entry, number)) for entry in entries)
        return future.epsilon <= target

    low, high = 0, most + 1  # the last that fits, the first that does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
