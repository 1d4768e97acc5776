"""One client's training in one round, as an operation of its own: one step is a local epoch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from trainops.kinds.federated.config import FederatedConfig
from trainops.kinds.federated.drawing import Secrets
from trainops.kinds.federated.path import is_path
from trainops.kinds.federated.purse import Purse
from trainops.kinds.federated.record import Record
from trainops.kinds.federated.releasing import Releasing
from trainops.kinds.federated.server import Server
from trainops.kinds.federated.visit import require_visit
from trainops.kinds.federated.workshop import Workshop
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import Metrics, StateDict
from trainops.runtime.ledger import MemoryLedger, PrivacyLedger
from trainops.runtime.subtasks import Part


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
        ledger: PrivacyLedger | None,
        part: Part,
    ) -> None:
        if part.given is None:
            raise ValueError("a client needs a checkpoint of its server to begin with")
        ledger = ledger or MemoryLedger()
        given = CheckpointStore(part.given.path.parent, identity={}).load(part.given)
        secrets, device = Secrets(ledger.secret, config.seed), choose_device(config.device)
        constants = given.get("constants", {})
        self.config, self.part = config, part
        self.workshop = Workshop(config, inputs, device, secrets, constants)
        self.server = Server(self.workshop)
        layout = self.workshop.layout
        layout.freeze(given["model"])
        self.server.parameters, self.server.buffers = layout.taken_apart(given["model"])
        if part.begins_with != self.server.identity():
            raise IncompatibleState("its server's checkpoint has another model than it is to have")
        self.record = self._placed(given["state"])
        self.releasing = Releasing(self.workshop, Purse(config.privacy, ledger))
        self.visit = self.server.receive(part.client, part.round)
        self.is_spent = False
        self.server.begin_streams("client", part.round, part.client)

    @property
    def step(self) -> int:
        return self.visit.epoch

    @property
    def total_steps(self) -> int:
        return self.step if self.is_spent else self.part.epochs

    @property
    def place(self) -> str:
        return f"epoch {min(self.step + 1, self.part.epochs)} of {self.part.epochs}"

    @property
    def checkpoint_steps(self) -> int:
        return self.config.checkpoint.every_client_epochs

    def advance(self) -> Metrics:
        entry, purse = self.releasing.of_epoch(self.visit, self.record), self.releasing.purse
        if entry is not None:
            if not purse.affords(entry):
                self.is_spent = True
                return {}
            purse.spend(entry)
        self.server.train(self.visit, entry.noise if entry else "", self.record.step + 1)
        self.record.epoch = self.visit.epoch
        return {}

    def state_dict(self) -> StateDict:
        purse = self.releasing.purse
        return {
            "state": {
                "recipe": self.config.recipe,
                "round": self.part.round,
                "client_epoch": self.visit.epoch,
                "client_epochs": self.part.epochs,
                "is_budget_spent": self.is_spent,
                "given": self.server.identity(),
                "privacy": purse.figures() if self.config.is_private else None,
            },
            "client": self.server.visiting(self.visit),
            **({"spent": purse.path} if self.config.is_private else {}),
        }

    def load_state_dict(self, state: StateDict) -> None:
        plain, visiting = read_client(state, self.server, self.record, self.part.client)
        if not 0 <= visiting["epoch"] <= self.part.epochs:
            raise IncompatibleState(
                f"the client is in epoch {visiting['epoch']}, of {self.part.epochs} that it may do"
            )
        if self.config.is_private:
            figures, step = plain.get("privacy") or {}, self.record.step + visiting["epoch"]
            self.releasing.purse = self.releasing.purse.thawed(state["spent"], figures, step)
        self.visit.load_state_dict(visiting)
        self.record.epoch, self.is_spent = self.visit.epoch, bool(plain.get("is_budget_spent"))

    def result(self) -> Mapping[str, Any]:
        return {
            "recipe": self.config.recipe,
            "round": self.part.round,
            "client_epochs": self.visit.epoch,
        }

    def _placed(self, state: Mapping[str, Any]) -> Record:
        """Return the server's record, with this client as the next one."""
        record = Record(self.config, self.workshop.schedule).from_state(state)
        if record.number != self.part.round or self.part.client not in record.chosen:
            raise IncompatibleState(
                f"{self.part.name} is to train in round {self.part.round}; the server's "
                f"checkpoint is in round {record.number}, which has not chosen it"
            )
        record.done, record.epoch = record.chosen.index(self.part.client), 0
        return record


def read_client(
    state: StateDict, server: Server, record: Record, client: int
) -> tuple[Mapping[str, Any], StateDict]:
    """Return the plain part of a client's state, and its visit. Raises IncompatibleState.

    The server must be the one that the client began with: the same model, bit for bit.
    """
    if missing := {"state", "client"} - state.keys():
        raise IncompatibleState(f"the client's state lacks {', '.join(sorted(missing))}")
    plain, is_private = state["state"], server.workshop.config.is_private
    if plain.get("round") != record.number or plain.get("given") != server.identity():
        raise IncompatibleState(
            f"{record.name_of(client)} began with another model than the server's in round "
            f"{record.number}"
        )
    if is_private and not is_path(state.get("spent")):
        raise IncompatibleState("what a client spent is not the stream of a federated run")
    visiting = server.visited(state["client"], client, record.number)
    require_visit(server.workshop, client, visiting)
    return plain, visiting
