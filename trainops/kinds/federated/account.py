"""What has been spent of each client's privacy, kept so that asking costs microseconds."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from trainops.kinds.federated.accounting import Figure, Setting, Spent, measured
from trainops.kinds.federated.releases import LEVELS, Level, Release

Measure = Callable[[Spent, float], Figure]  # steps by setting, delta -> epsilon, and by whom
EVERYONE = None  # in the place of a client: releases that concern all of them
MOST_RATES = 16  # that a cover measures one by one


class Account:
    """Sums of entries, by level and client; the same whatever the order that they came in.

    A client's steps count against that client alone: no other client's data was in them. The worst
    client's epsilon is the account's. Sample and user level are added, an upper bound for a
    member whose example and whose whole client both take part.

    Entries that released nothing say what sample rates there are. Where there are such, and they
    come first, each client's epoch counts as one of every client: see Cover.
    """

    def __init__(self, delta: float, measure: Measure = measured) -> None:
        self.delta, self.measure = delta, measure
        self._spent: dict[tuple[Level, int | None], dict[Setting, int]] = defaultdict(dict)
        self._carried: dict[Level, float] = dict.fromkeys(LEVELS, 0.0)
        self._known: dict[tuple[Level, int | None], Figure] = {}  # those that still hold
        self._cover = Cover()

    def add(self, entries: Iterable[Release]) -> None:
        for entry in entries:
            if not entry.is_release or self._is_covered(entry):
                self._cover.add(entry)
                self._forget(entry.level, EVERYONE)
                continue
            self._carried[entry.level] += entry.carried
            spent = self._spent[entry.level, entry.client]
            setting = (entry.noise_multiplier, entry.sample_rate)
            spent[setting] = spent.get(setting, 0) + entry.steps
            self._forget(entry.level, entry.client)

    def copy(self) -> "Account":
        other = Account(self.delta, self.measure)
        other._spent |= {who: dict(spent) for who, spent in self._spent.items()}
        other._carried, other._known = dict(self._carried), dict(self._known)
        other._cover = self._cover.copy()
        return other

    @property
    def epsilon(self) -> float:
        """The worst client's, of both levels together; 0 where nothing was spent."""
        return sum(self.of(level) for level in LEVELS)

    def of(self, level: Level) -> float:
        """Return the worst client's epsilon at one level."""
        return self._carried[level] + self._worst(level).epsilon

    @property
    def accountants(self) -> list[str]:
        """The names of the accountants that gave the figures of the worst clients."""
        worst = [self._worst(level) for level in LEVELS]
        return sorted({each.accountant for each in worst if each.epsilon})

    def by_client(self, level: Level) -> dict[int, float]:
        """Return each client's epsilon at one level, of those with entries of their own."""
        clients = sorted(who for at, who in self._spent if at == level and who is not None)
        return {who: self._carried[level] + self._client(level, who).epsilon for who in clients}

    def with_entry(self, entry: Release) -> float:
        """Return what `epsilon` would be with one entry more."""
        other = self.copy()
        other.add([entry])
        return other.epsilon

    def worst_covered(self) -> list[tuple[float, float, int]]:
        """Return the noise multiplier, sample rate and steps of each covered round of the worst."""
        spent = self._spent.get(("sample", EVERYONE), {})

        def epsilon_of(rate: tuple[float, int]) -> float:
            return self.measure(self._cover.with_rate(spent, *rate), self.delta).epsilon

        rates = self._cover.rates()
        return self._cover.rounds(*max(rates, key=epsilon_of)) if rates else []

    def _is_covered(self, entry: Release) -> bool:
        is_of_one = entry.level == "sample" and entry.client is not EVERYONE
        return is_of_one and self._cover.is_on

    def _worst(self, level: Level) -> Figure:
        clients = [who for at, who in list(self._spent) if at == level] or [EVERYONE]
        return max(self._client(level, who) for who in clients)

    def _client(self, level: Level, client: int | None) -> Figure:
        if (level, client) not in self._known:
            spent = dict(self._spent.get((level, client), {}))
            if client is not EVERYONE:
                for setting, steps in self._spent.get((level, EVERYONE), {}).items():
                    spent[setting] = spent.get(setting, 0) + steps
            rates = self._cover.rates() if level == "sample" else []
            each = [self._cover.with_rate(spent, *rate) for rate in rates] or [spent]
            self._known[level, client] = max(self.measure(one, self.delta) for one in each)
        return self._known[level, client]

    def _forget(self, level: Level, client: int | None) -> None:
        if client is EVERYONE:
            self._known = {who: value for who, value in self._known.items() if who[0] != level}
        else:
            self._known.pop((level, client), None)


class Cover:
    """Clients' epochs, counted as if all clients had trained whenever one had.

    What it comes to follows from how far each round is, and not from who was in it. Of the epochs
    of a round, with one noise multiplier, those of the client count that has most.
    """

    def __init__(self) -> None:
        self._rates: set[float] = set()
        self._epochs: dict[tuple[float, int, int | None], float] = {}  # noise, round, client
        self._most: dict[tuple[float, int], float] = {}  # noise, round
        self._totals: dict[float, float] = defaultdict(float)  # of all rounds, by noise

    @property
    def is_on(self) -> bool:
        return bool(self._rates)

    def add(self, entry: Release) -> None:
        self._rates.add(entry.sample_rate)
        if entry.is_release:
            sigma, number = entry.noise_multiplier, entry.round
            one, all_of_it = (sigma, number, entry.client), (sigma, number)
            epochs = entry.steps / steps_of_epoch(entry.sample_rate)
            self._epochs[one] = self._epochs.get(one, 0.0) + epochs
            more = max(0.0, self._epochs[one] - self._most.get(all_of_it, 0.0))
            self._most[all_of_it] = self._most.get(all_of_it, 0.0) + more
            self._totals[sigma] += more

    def copy(self) -> "Cover":
        other = Cover()
        other._rates = set(self._rates)
        other._epochs, other._most = dict(self._epochs), dict(self._most)
        other._totals |= self._totals
        return other

    def rates(self) -> list[tuple[float, int]]:
        """Return sample rates and steps of an epoch that no client exceeds.

        Where there are many, some that are alike share the higher rate and the more steps.
        """
        ordered = sorted(self._rates)
        size = -(-len(ordered) // MOST_RATES) or 1
        groups = (ordered[at : at + size] for at in range(0, len(ordered), size))
        return [(group[-1], steps_of_epoch(group[0])) for group in groups]

    def with_rate(self, spent: Spent, rate: float, steps: int) -> dict[Setting, int]:
        """Return the steps by setting of a client with this rate, and these beside them."""
        found = dict(spent)
        for sigma, epochs in self._totals.items():
            found[sigma, rate] = found.get((sigma, rate), 0) + math.ceil(epochs * steps)
        return found

    def rounds(self, rate: float, steps: int) -> list[tuple[float, float, int]]:
        """Return the noise multiplier, sample rate and steps of each round."""
        most = sorted(self._most.items(), key=lambda each: each[0][1])
        return [(sigma, rate, math.ceil(epochs * steps)) for (sigma, _), epochs in most]


def steps_of_epoch(rate: float) -> int:
    """Return the steps of an epoch: as many as batches hold all examples, at B / N for N of them.

    The rate is rounded, so a little more than a whole number of batches is that number.
    """
    return math.ceil(1 / rate - 1e-9)


def rounds_left(
    account: Account, each: Iterable[Release], target: float, most: int, share: float = 1.0
) -> int:
    """Return how many more rounds, each of these entries, fit into a budget; at most `most`.

    A client's own entries come in so large a share of the rounds.
    """
    entries = list(each)

    def steps(entry: Release, number: int) -> int:
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
