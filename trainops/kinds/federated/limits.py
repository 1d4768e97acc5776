"""What a federated config cannot ask for together, as far as it can be known without the data."""

import math
import re

from trainops.kinds.federated.options import EVERY_OTHER, FederatedOptions
from trainops.lazy import load
from trainops.quantities import plural
from trainops.runtime.labels import LABEL_RULE, is_label

NUMBER = re.compile("0|[1-9][0-9]{0,8}")
NUM_FOLLOWED = 40  # clients, the first ones, each of which has curves of its own
NUM_ROUNDS_FOLLOWED = 1000  # about, of which these curves have points
FEW_CLIENTS = 10  # with fewer, the noise of a whole client's update drowns it
SEARCH = "trainops.kinds.federated.noise:find_for"  # a string: it imports NumPy
ROBUST = ("median", "trimmed_mean")


class Infeasible(ValueError):
    """No noise that is considered keeps a plan within its budget; `most` is the largest."""

    def __init__(self, target: float, reached: float, most: float) -> None:
        super().__init__(
            f"got {target:g}; even a noise multiplier of {most:g} exceeds it; allowed: "
            f"{reached:g} or more, or fewer rounds, fewer local epochs, a smaller fraction of "
            "clients or smaller batches"
        )


def problems_of(config: FederatedOptions) -> dict[str, str]:
    """Return what is wrong by field; empty where all is well."""
    problems = {}
    if config.min_clients > config.clients and config.partition.by not in ("column", "file"):
        problems["min_clients"] = (
            f"got {config.min_clients}; allowed: at most the number of clients, {config.clients}"
        )
    if config.partition.by == "column" and not config.partition.column:
        problems["partition.column"] = "nothing was given; required to partition by column"
    if config.batched_clients and config.has_samples_noised:
        problems["batched_clients"] = (
            f"got true; privacy.mode is {config.privacy.mode!r}, which needs separate noise for "
            "each client's examples; allowed: false, or the modes none and user"
        )
    problems |= _problems_of_placement(config)
    if config.is_private:
        problems |= _problems_of_privacy(config)
    return problems


def warnings_of(config: FederatedOptions, num_clients: int, clients_per_round: int) -> list[str]:
    """Return what is allowed, and unlikely to be meant."""
    warnings = []
    if config.has_users_noised and num_clients < FEW_CLIENTS:
        warnings.append(
            f"user-level privacy with {num_clients} clients: the noise is as large as the "
            f"update of one client; with fewer than {FEW_CLIENTS} clients the model hardly learns"
        )
    trim = config.server.trim
    if config.server.strategy == "trimmed_mean" and not num_trimmed(trim, clients_per_round):
        allowed = "3 clients per round or more are needed"
        if clients_per_round > 2:
            least = math.ceil(1e4 / clients_per_round) / 1e4
            allowed = f"the smallest trim that leaves one out at each end is {least:g}"
        warnings.append(
            f"server.trim {trim:g} leaves out none of {plural(clients_per_round, 'client')} per "
            f"round: trimmed_mean is a plain mean, which one client can carry away; {allowed}"
        )
    return warnings


def num_trimmed(trim: float, count: int) -> int:
    """Return how many values are trimmed at each end; at least one of them all is left."""
    return min(math.floor(round(trim * count, 6)), (count - 1) // 2)  # 0.29 * 100 < 29


def _problems_of_placement(config: FederatedOptions) -> dict[str, str]:
    if not config.is_distributed:
        given = {"labels": config.labels, "round_timeout": config.round_timeout}
        return {
            name: f"got {value}; allowed with placement: distributed"
            for name, value in given.items()
            if value
        }
    if config.batched_clients:
        problem = "got true; with placement: distributed each client trains separately"
        return {"batched_clients": f"{problem}; allowed: false"}
    if config.labels and config.has_users_noised and config.fraction < 1:
        problem = (
            "they reveal which clients are sampled for a round, which must be secret "
            "with user-level privacy"
        )
        return {"labels": f"{problem}; allowed: no labels, or fraction: 1"}
    problems = (_problem_of_label(config, client) for client in config.labels)
    problem = next(filter(None, problems), "")
    return {"labels": problem} if problem else {}


def _problem_of_label(config: FederatedOptions, client: str) -> str:
    is_number = NUMBER.fullmatch(client) is not None
    if client != EVERY_OTHER and not is_number:
        return f"got the client {client[:60]!r}; allowed: numbers from 0, and {EVERY_OTHER}"
    is_known = config.partition.by not in ("column", "file")
    if is_number and is_known and int(client) >= config.clients:
        return f"got the client {client}; allowed: 0 to {config.clients - 1}"
    label = config.label_of(int(client) if is_number else 0)
    return "" if is_label(label) else f"got {config.labels[client][:80]!r}; {LABEL_RULE}"


def _problems_of_privacy(config: FederatedOptions) -> dict[str, str]:
    privacy, problems = config.privacy, {}
    needed = {
        "noise_multiplier": config.has_samples_noised and privacy.noise_multiplier is None,
        "user_noise_multiplier": config.has_users_noised and privacy.user_noise_multiplier is None,
    }
    if privacy.target_epsilon is None:
        for name in (name for name, is_missing in needed.items() if is_missing):
            problems[f"privacy.{name}"] = "nothing was given; required without target_epsilon"
    if config.has_users_noised:
        problems |= _problems_of_users(config)
    return problems


def _problems_of_users(config: FederatedOptions) -> dict[str, str]:
    problems = {}
    if config.server.strategy in ROBUST:
        problems["server.strategy"] = (
            f"got {config.server.strategy!r}; user-level noise requires a mean; allowed: the "
            "strategies that aggregate by mean"
        )
    if config.min_clients > 1 and config.fraction < 1:
        problems["min_clients"] = (
            f"got {config.min_clients}; user-level privacy samples each client "
            "independently, so no minimum is guaranteed; allowed: 1, or fraction: 1"
        )
    privacy = config.privacy
    if privacy.target_epsilon is not None and privacy.user_noise_multiplier is None:
        try:
            find_user_noise(config)
        except Infeasible as error:
            problems["privacy.target_epsilon"] = str(error)
    return problems


def share_of_budget(config: FederatedOptions) -> float:
    """Return what of the budget each level may plan with: both count where there are two."""
    return (config.privacy.target_epsilon or 0.0) / (2 if config.privacy.mode == "hybrid" else 1)


def find_user_noise(config: FederatedOptions) -> float:
    """Return the noise of rounds that the budget asks for. Raises Infeasible."""
    steps = {config.fraction: config.rounds}
    found: float = load(SEARCH)(share_of_budget(config), config.privacy.delta, steps)
    return found
