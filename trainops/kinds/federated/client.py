"""One client's training in one round, as an operation of its own: one step is a local epoch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from trainops.kinds.federated.budget import PrivacyBudget
from trainops.kinds.federated.config import FederatedConfig
from trainops.kinds.federated.context import FederatedContext
from trainops.kinds.federated.local_training import require_local_training
from trainops.kinds.federated.noise_accounting import NoiseAccounting
from trainops.kinds.federated.progress import FederatedProgress
from trainops.kinds.federated.release_log import is_path
from trainops.kinds.federated.releases import ReleaseLedger
from trainops.kinds.federated.rng import Secrets
from trainops.kinds.federated.server import FederatedServer
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import Metrics, StateDict
from trainops.runtime.ledger import Ledger, MemoryLedger
from trainops.runtime.position import completed
from trainops.runtime.subtasks import Subtask


class ClientJob:
    """Begins with a checkpoint of the server, and ends with what the server would have then.

    Its releases are named as the server would name them, and written into the server's ledger
    before they happen. Under user-level privacy its own model is masked in its checkpoints, as it
    is in the server's.
    """

    unit: ClassVar[str] = "client epoch"

    def __init__(
        self,
        config: FederatedConfig,
        inputs: Mapping[str, Path],
        ledger: Ledger | None,
        subtask: Subtask,
    ) -> None:
        if subtask.given is None:
            raise ValueError("a client requires an initial checkpoint of its server")
        releases = ReleaseLedger(ledger or MemoryLedger())
        given = CheckpointStore(subtask.given.path.parent, identity={}).load(subtask.given)
        secrets, device = Secrets(releases.secret, config.seed), choose_device(config.device)
        constants = given.get("constants", {})
        self.config, self.subtask = config, subtask
        self.epochs = cast(int, subtask.spec["epochs"])
        self.context = FederatedContext(config, inputs, device, secrets, constants)
        self.server = FederatedServer(self.context)
        layout = self.context.layout
        layout.freeze(given["model"])
        self.server.parameters, self.server.buffers = layout.taken_apart(given["model"])
        if subtask.begins_with != self.server.identity():
            raise IncompatibleState("the model in its server's checkpoint is not the expected one")
        self.progress = self._placed(given["state"])
        self.noise_accounting = NoiseAccounting(
            self.context, PrivacyBudget(config.privacy, releases)
        )
        self.local_training = self.server.receive(subtask.index, subtask.group)
        self.is_spent = False
        self.server.begin_streams("client", subtask.group, subtask.index)

    @property
    def step(self) -> int:
        return self.local_training.epoch

    @property
    def total_steps(self) -> int:
        return self.step if self.is_spent else self.epochs

    @property
    def place(self) -> str:
        return completed("epoch", self.step, self.epochs)

    @property
    def checkpoint_steps(self) -> int:
        return self.config.checkpoint.every_client_epochs

    def advance(self) -> Metrics:
        entry, budget = (
            self.noise_accounting.of_epoch(self.local_training, self.progress),
            self.noise_accounting.budget,
        )
        if entry is not None:
            if not budget.affords(entry):
                self.is_spent = True
                return {}
            budget.spend(entry)
        self.server.train(self.local_training, entry.noise if entry else "", self.progress.step + 1)
        self.progress.epoch = self.local_training.epoch
        return {}

    def state_dict(self) -> StateDict:
        budget = self.noise_accounting.budget
        return {
            "state": {
                "recipe": self.config.recipe,
                "round": self.subtask.group,
                "client_epoch": self.local_training.epoch,
                "client_epochs": self.epochs,
                "is_budget_spent": self.is_spent,
                "given": self.server.identity(),
                "privacy": budget.figures() if self.config.is_private else None,
            },
            "client": self.server.visiting(self.local_training),
            **({"spent": budget.path} if self.config.is_private else {}),
        }

    def load_state_dict(self, state: StateDict) -> None:
        plain, visiting = read_client(state, self.server, self.progress, self.subtask.index)
        if not 0 <= visiting["epoch"] <= self.epochs:
            raise IncompatibleState(
                f"the client is in epoch {visiting['epoch']}, of {self.epochs} that it may do"
            )
        if self.config.is_private:
            figures, step = plain.get("privacy") or {}, self.progress.step + visiting["epoch"]
            self.noise_accounting.budget = self.noise_accounting.budget.thawed(
                state["spent"], figures, step
            )
        self.local_training.load_state_dict(visiting)
        self.progress.epoch, self.is_spent = (
            self.local_training.epoch,
            bool(plain.get("is_budget_spent")),
        )

    def result(self) -> Mapping[str, Any]:
        return {
            "recipe": self.config.recipe,
            "round": self.subtask.group,
            "client_epochs": self.local_training.epoch,
        }

    def _placed(self, state: Mapping[str, Any]) -> FederatedProgress:
        """Return the server's record, with this client as the next one."""
        progress = FederatedProgress(self.config, self.context.schedule).from_state(state)
        if progress.number != self.subtask.group or self.subtask.index not in progress.chosen:
            raise IncompatibleState(
                f"{self.subtask.name} is to train in round {self.subtask.group}; the server's "
                f"checkpoint is in round {progress.number}, which has not chosen it"
            )
        progress.done, progress.epoch = progress.chosen.index(self.subtask.index), 0
        return progress


def read_client(
    state: StateDict, server: FederatedServer, progress: FederatedProgress, client: int
) -> tuple[Mapping[str, Any], StateDict]:
    """Return the plain part of a client's state, and its visit. Raises IncompatibleState.

    The server must be the one that the client began with: the same model, bit for bit.
    """
    if missing := {"state", "client"} - state.keys():
        raise IncompatibleState(f"the client's state lacks {', '.join(sorted(missing))}")
    plain, is_private = state["state"], server.context.config.is_private
    if plain.get("round") != progress.number or plain.get("given") != server.identity():
        raise IncompatibleState(
            f"{progress.name_of(client)} began with another model than the server's in round "
            f"{progress.number}"
        )
    if is_private and not is_path(state.get("spent")):
        raise IncompatibleState("what a client spent is not the stream of a federated run")
    visiting = server.visited(state["client"], client, progress.number)
    require_local_training(server.context, client, visiting)
    return plain, visiting
