"""The file of a federated run, version "2.0": what it holds, read and written."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from trainops.files.errors import UnsupportedVersion
from trainops.files.fields import shown

VERSION, READABLE = "2.0", "2."
ROUND_STATUSES = ("in_progress", "completed")
CLIENT_STATUSES = ("in_progress", "completed", "pending")

Arrays = tuple[NDArray[Any], ...]
Spent = tuple[float, float, int]  # noise multiplier, sample rate, steps


@dataclass(frozen=True, slots=True)
class Round:
    """`current` counts from 1. A completed round says nothing about its clients' entries."""

    current: int
    total: int
    status: str

    @property
    def remaining(self) -> int:
        """Return how many rounds are left to do, this one included unless it is completed."""
        next_round = self.current + (self.status == "completed")
        return max(0, self.total - next_round + 1)


@dataclass(frozen=True, slots=True)
class ServerState:
    """`parameters` are in the order of the model's own, without names."""

    parameters: Arrays
    best_dice: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """`current` is how many of the client's epochs are done."""

    current: int
    total: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientState:
    """What is kept of one client within a round: a state to continue from, or its result.

    `epsilon` and `steps` are what it has spent in this round; `noise_multiplier` and `sample_rate`
    are those of its steps. Files of the other tool have the rate in `final_metrics` or not at all.
    """

    client_id: int
    epoch: EpochProgress
    model_state: Mapping[str, Tensor] | None = None
    optimizer_state: Mapping[str, Any] | None = None
    loss_sum: float = 0.0
    epochs_done: int = 0
    epsilon: float = 0.0
    steps: int = 0
    noise_multiplier: float | None = None
    sample_rate: float | None = None
    final_parameters: Arrays | None = None
    final_metrics: Mapping[str, float] | None = None
    num_samples: int = 0


@dataclass(frozen=True, slots=True)
class PrivacyState:
    """What has been spent. The histories count; the epsilons follow from them.

    Histories and cumulative epsilons are of completed rounds. `partial_round_epsilon` is by how
    much the round in progress raises the sample level's; its steps are the clients'.
    """

    target_delta: float
    sample_history: tuple[Spent, ...] = ()
    user_history: tuple[Spent, ...] = ()
    cumulative_sample_epsilon: float = 0.0
    cumulative_user_epsilon: float = 0.0
    partial_round_epsilon: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedFile:
    """One checkpoint of a federated run, in the middle of a round or after it."""

    timestamp: str
    run_name: str
    round: Round
    server: ServerState
    clients: Mapping[int, ClientState]
    privacy: PrivacyState
    version: str = VERSION


def check_version(tree: Mapping[str, Any]) -> str:
    """Return what to say about the version. Raises UnsupportedVersion."""
    found = tree.get("version", "1.0")
    if not isinstance(found, str) or not found.startswith(READABLE):
        raise UnsupportedVersion(
            f"this is a federated checkpoint of version {shown(found)}; 2.x is expected. "
            "Older ones lack the clients' states and cannot be converted"
        )
    return f"federated, version {found}"


def to_tree(file: FederatedFile) -> dict[str, Any]:
    """Return what is saved, with the keys that the other tool writes."""
    privacy = file.privacy
    return {
        "version": file.version,
        "timestamp": file.timestamp,
        "run_name": file.run_name,
        "round": {
            "current": file.round.current,
            "total": file.round.total,
            "status": file.round.status,
        },
        "server": {
            "parameters": list(file.server.parameters),
            "best_dice": file.server.best_dice,
            "metrics": dict(file.server.metrics),
        },
        "clients": {number: _client_tree(client) for number, client in file.clients.items()},
        "privacy": {
            "target_delta": privacy.target_delta,
            "sample_history": list(privacy.sample_history),
            "user_history": list(privacy.user_history),
            "cumulative_sample_epsilon": privacy.cumulative_sample_epsilon,
            "cumulative_user_epsilon": privacy.cumulative_user_epsilon,
            "partial_round_epsilon": privacy.partial_round_epsilon,
        },
    }


def disagreements(file: FederatedFile) -> dict[str, str]:
    """Return what does not fit the rest of the file, by place.

    After a completed round the clients' entries are leftovers: the tool clears their results and
    counters, and not always their status. They are looked at only in a round in progress.
    """
    found: dict[str, str] = {}
    shapes = _shapes(file.server.parameters)
    for number, client in file.clients.items():
        problems: dict[str, str] = {}
        if file.round.status == "in_progress":
            problems = _client_disagreements(client, shapes)
        found |= {f"clients[{number}].{name}": problem for name, problem in problems.items()}
        if client.client_id != number:
            found[f"clients[{number}].client_id"] = f"is {client.client_id}"
    return found


def notices(file: FederatedFile) -> tuple[str, ...]:
    """Return what is odd and no mistake: the tool keeps `total` of a run that was made longer."""
    current, total = file.round.current, file.round.total
    if current <= total:
        return ()
    return (f"round.current is {current} of {total} rounds: the run was extended",)


def _client_disagreements(client: ClientState, shapes: Sequence[tuple[int, ...]]) -> dict[str, str]:
    found, epoch = {}, client.epoch
    has_result = client.final_parameters is not None or client.model_state is not None
    if epoch.current > epoch.total:
        found["epoch.current"] = f"is {epoch.current} of {epoch.total} epochs"
    if client.epochs_done != epoch.current:
        found["partial_metrics.epochs_done"] = f"is {client.epochs_done} in epoch {epoch.current}"
    if epoch.status == "completed" and not has_result:
        found["final_parameters"] = "are missing; the client is completed, so its result is needed"
    if client.final_parameters is not None and _shapes(client.final_parameters) != shapes:
        found["final_parameters"] = "are of other shapes than server.parameters"
    return found


def _shapes(parameters: Arrays) -> list[tuple[int, ...]]:
    return [each.shape for each in parameters]


def _client_tree(client: ClientState) -> dict[str, Any]:
    parameters = client.final_parameters
    setting = {"noise_multiplier": client.noise_multiplier, "sample_rate": client.sample_rate}
    return {
        "client_id": client.client_id,
        "epoch": {
            "current": client.epoch.current,
            "total": client.epoch.total,
            "status": client.epoch.status,
        },
        "model_state": None if client.model_state is None else OrderedDict(client.model_state),
        "optimizer_state": client.optimizer_state,
        "partial_metrics": {"loss_sum": client.loss_sum, "epochs_done": client.epochs_done},
        "partial_privacy": {
            "epsilon": client.epsilon,
            "steps": client.steps,
            **{name: value for name, value in setting.items() if value is not None},
        },
        "final_parameters": None if parameters is None else list(parameters),
        "final_metrics": client.final_metrics,
        "num_samples": client.num_samples,
    }
