"""What a federated file says was spent of its clients' privacy, as releases of the ledger.

Every field that holds a privacy loss becomes an entry, or the file is refused: the histories and
the cumulative epsilons of completed rounds, and what the round in progress has spent, which files
hold by client (`partial_privacy`, `final_metrics`) and as the increase of the cumulative epsilon
(`partial_round_epsilon`). An epsilon among `server.metrics` counts where it is larger than those.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainops.kinds.federated.account import Account
from trainops.kinds.federated.accounting import Setting, epsilon
from trainops.kinds.federated.files.file import ClientState, FederatedFile, Spent
from trainops.kinds.federated.releases import LEVELS, Level, Release
from trainops.runtime.errors import IncompatibleState

Identity = Callable[[list[Any]], str]
EPSILON = "epsilon"
SAMPLE = ("sample_epsilon", "cumulative_sample_epsilon")  # of server.metrics
USER = ("user_epsilon", "cumulative_user_epsilon")
LEAST = 1e-9  # of an epsilon: below it, history and figure agree


@dataclass(frozen=True, slots=True)
class PartialSpend:
    """What one client has spent in the round in progress.

    `setting` (noise multiplier, sample rate) is the client's own, else the costliest of the file's
    history; None where the file has neither. Then `epsilon`, the file's figure for these steps
    alone, is all that is known.
    """

    client: int
    steps: int
    epsilon: float
    setting: Setting | None


def has_spent(file: FederatedFile) -> bool:
    """Whether any field of the file holds a privacy loss."""
    privacy = file.privacy
    figures = (
        privacy.cumulative_sample_epsilon, privacy.cumulative_user_epsilon,
        privacy.partial_round_epsilon,
        *(file.server.metrics.get(name, 0.0) for name in (EPSILON, *SAMPLE, *USER)),
    )  # fmt: skip
    clients = file.clients.values()
    return bool(
        any(figures)
        or any(steps for *_, steps in (*privacy.sample_history, *privacy.user_history))
        or any(spends_samples(client) for client in clients)
    )


def spends_samples(client: ClientState) -> bool:
    """Whether the file says what this client's training cost: it was trained with noise."""
    final = client.final_metrics or {}
    return any((client.steps, client.epsilon, final.get("steps"), final.get(EPSILON)))


def ledger_entries(
    file: FederatedFile, delta: float, identity: Identity, *, is_by_client: bool
) -> Iterator[tuple[Release, str, str]]:
    """Yield each entry, the receipt's part for it, and what the receipt says there.

    Completed rounds concern every client. The round in progress concerns the client that trained,
    where `is_by_client`: the file's clients are the config's (see `is_of`). Else every client is
    charged with what the worst one spent. `delta` is the config's; `identity` names an
    entry by plain values.

    Raises IncompatibleState where the file holds a loss that no entry can express.
    """
    privacy = file.privacy
    _require_delta(file, delta)
    figures = _figures(file)
    histories = {"sample": privacy.sample_history, "user": privacy.user_history}
    account = Account(delta)
    for level in LEVELS:
        for entry in _completed(level, histories[level], figures[level], delta, identity):
            account.add([entry])
            yield entry, f"privacy: {level} level", carried_note(entry) if entry.carried else ""
    before, part = account.of("sample"), "privacy: round in progress"
    for entry, note in _in_progress(list(_partial_spends(file)), identity, is_by_client, delta):
        account.add([entry])
        yield entry, part, note
    missing = privacy.partial_round_epsilon - (account.of("sample") - before)
    if missing > LEAST * max(1.0, privacy.partial_round_epsilon):
        entry = _entry(identity, "sample", "partial_round_epsilon", carried=missing)
        yield entry, part, carried_note(entry)


def is_of(file: FederatedFile, sizes: Sequence[int]) -> bool:
    """Whether the clients that have spent something in this round have these many examples."""
    return all(
        number < len(sizes) and client.num_samples == sizes[number]
        for number, client in file.clients.items()
        if spends_samples(client)
    )


def _figures(file: FederatedFile) -> dict[Level, float]:
    """Return the epsilon of the completed rounds by level, the largest that the file names.

    An epsilon of both levels together counts for the sample level as far as it exceeds them.
    """
    privacy, metrics = file.privacy, file.server.metrics

    def largest(figure: float, names: Sequence[str]) -> float:
        return max(figure, *(_checked(metrics, name, "server.metrics") for name in names))

    sample = largest(privacy.cumulative_sample_epsilon, SAMPLE)
    user = largest(privacy.cumulative_user_epsilon, USER)
    return {"sample": max(sample, largest(0.0, [EPSILON]) - user), "user": user}


def _checked(metrics: Mapping[str, float], name: str, place: str) -> float:
    value = float(metrics.get(name, 0.0))
    if not 0 <= value < math.inf:
        raise IncompatibleState(f"{place}.{name} is {value:g}; allowed: 0 or more, finite")
    return value


def _require_delta(file: FederatedFile, delta: float) -> None:
    if file.privacy.target_delta != delta:
        raise IncompatibleState(
            f"target_delta is {file.privacy.target_delta:g}, the config's {delta:g}"
        )
    for number, client in file.clients.items():
        found = (client.final_metrics or {}).get("delta", delta)
        if not found <= delta:
            raise IncompatibleState(
                f"clients[{number}].final_metrics.delta is {found:g}; allowed: at most {delta:g}"
            )


def _completed(
    level: Level,
    history: Sequence[Spent],
    figure: float,
    delta: float,
    identity: Identity,
) -> Iterator[Release]:
    """Yield entries of a history, and one for what the figure says beyond it."""
    account = Account(delta)
    for number, (sigma, rate, steps) in enumerate(history):
        if steps:
            entry = _entry(identity, level, number, sigma, rate, steps)
            account.add([entry])
            yield entry
    unexplained = figure - account.of(level)
    if unexplained > LEAST * max(1.0, figure):
        number = sum(1 for *_, steps in history if steps)
        yield _entry(identity, level, number, carried=unexplained)


def _partial_spends(file: FederatedFile) -> Iterator[PartialSpend]:
    """Yield what each client has spent in the round in progress."""
    for number, client in file.clients.items():
        if spends_samples(client):
            place, final = f"clients[{number}].final_metrics", client.final_metrics or {}
            yield PartialSpend(
                number,
                max(client.steps, math.ceil(_checked(final, "steps", place))),
                max(client.epsilon, _checked(final, EPSILON, place)),
                _setting(number, client, file.privacy.sample_history),
            )


def _setting(number: int, client: ClientState, history: Sequence[Spent]) -> Setting | None:
    """Return the least noise and the highest sample rate that a client's steps may have had."""
    rate = client.sample_rate
    if rate is None:
        rate = (client.final_metrics or {}).get("sample_rate")
    if rate is not None and not 0 < rate <= 1:
        place = f"clients[{number}]: sample_rate"
        raise IncompatibleState(f"{place} is {rate:g}; allowed: above 0, at most 1")
    released = [(sigma, found) for sigma, found, steps in history if steps]
    sigma = client.noise_multiplier
    if sigma is None:
        sigma = min((each for each, _ in released), default=None)
    if rate is None:
        rate = max((each for _, each in released), default=None)
    return None if sigma is None or rate is None else (sigma, rate)


def _in_progress(
    partial: Sequence[PartialSpend],
    identity: Identity,
    is_by_client: bool,
    delta: float,
) -> Iterator[tuple[Release, str]]:
    """Yield entries of the steps that can be accounted for, then one for all other figures."""
    counted = [(each, each.setting) for each in partial if each.steps and each.setting]
    costs = {each.client: epsilon({setting: each.steps}, delta) for each, setting in counted}
    for each in partial:
        if each.client not in costs and not each.epsilon:
            raise IncompatibleState(
                f"clients[{each.client}].partial_privacy.steps is {each.steps}; neither "
                "sample_history nor partial_privacy.epsilon says what they cost"
            )
    if counted and not is_by_client:
        sigma = min(setting[0] for _, setting in counted)
        rate = max(setting[1] for _, setting in counted)
        steps = max(each.steps for each, _ in counted)
        note = f"{steps} steps are counted for every client"
        yield _entry(identity, "sample", "in progress", sigma, rate, steps), note
    for each, (sigma, rate) in counted if is_by_client else ():
        entry = _entry(
            identity, "sample", "in progress", sigma, rate, each.steps, client=each.client
        )
        yield entry, f"{each.steps} steps of client {each.client} are counted"
    carried = max((each.epsilon - costs.get(each.client, 0.0) for each in partial), default=0.0)
    if carried > LEAST * max([1.0, *(each.epsilon for each in partial)]):
        entry = _entry(identity, "sample", "in progress", carried=carried)
        yield entry, carried_note(entry)


def _entry(
    identity: Identity,
    level: Level,
    place: int | str,
    sigma: float = 1.0,
    rate: float = 0.0,
    steps: int = 0,
    *,
    carried: float = 0.0,
    client: int | None = None,
) -> Release:
    plain: list[Any] = ["imported", level, place, sigma, rate, steps, carried]
    return Release(
        noise=identity(plain if client is None else [*plain, client]), step=0, round=0,
        client=client, level=level, noise_multiplier=sigma, sample_rate=rate, steps=steps,
        carried=carried,
    )  # fmt: skip


def carried_note(entry: Release) -> str:
    """Return what the receipt says of an epsilon that is added as a figure."""
    return (
        f"epsilon {entry.carried:g} came without its history, and is added in full, as its delta "
        "is: each figure so added counts the delta once more"
    )
