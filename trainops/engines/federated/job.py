"""Federated training: one step is one local epoch of one client."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from trainops.engines.devices import choose_device
from trainops.engines.errors import IncompatibleState
from trainops.engines.federated.config import FederatedConfig
from trainops.engines.federated.drawing import Secrets
from trainops.engines.federated.limits import warnings_of
from trainops.engines.federated.partition import picture
from trainops.engines.federated.path import is_path
from trainops.engines.federated.purse import Purse
from trainops.engines.federated.record import Record
from trainops.engines.federated.releasing import Releasing
from trainops.engines.federated.server import Server
from trainops.engines.federated.together import Together, require_stackable
from trainops.engines.federated.visit import Visit
from trainops.engines.federated.workshop import Workshop
from trainops.engines.job import Metrics, StateDict
from trainops.engines.spending import Entry, MemoryLedger, PrivacyLedger

REASON = "PRIVACY_BUDGET"  # why a run is over before its last round


class FederatedJob:
    """A recipe's examples, spread over clients that learn together.

    A step trains one client for one local epoch. The step that ends a round also makes the next
    model of what its clients sent, and judges it. Safe points lie between two local epochs: what
    clients of this round sent is kept, and the one in training goes on with its own model and
    optimizer. With `batched_clients` a step is an epoch of all clients of the round.
    """

    unit: ClassVar[str] = "client epoch"

    def __init__(
        self,
        config: FederatedConfig,
        inputs: Mapping[str, Path],
        ledger: PrivacyLedger | None = None,
    ) -> None:
        self.config, self.inputs = config, inputs
        self.ledger = ledger or MemoryLedger()
        self.device = choose_device(config.device)
        self.secrets = Secrets(self.ledger.secret, config.seed)
        self.workshop = self._make_workshop({})
        self.server = Server(self.workshop)
        if config.batched_clients:
            require_stackable(self.workshop)
        self.releasing = Releasing(self.workshop, Purse(config.privacy, self.ledger))
        self.record = Record(config, self.workshop.schedule)
        self.visit: Visit | Together | None = None
        self._mind_the_budget()

    @property
    def step(self) -> int:
        return self.record.step

    @property
    def total_steps(self) -> int:
        return self.record.total_steps

    @property
    def place(self) -> str:
        return self.record.place

    @property
    def checkpoint_steps(self) -> int:
        return self.config.checkpoint.every_client_epochs

    def advance(self) -> Metrics:
        metrics = self._finish_rounds()  # those at the beginning that no client takes part in
        if self.record.is_over or self.record.is_spent:
            return metrics
        visit = self._visit()
        entry = self.releasing.of_epoch(visit, self.record)
        if entry is not None and not self._spend(entry):
            return metrics
        visit.train(entry.noise if entry else "", self.step + 1)
        if self.record.epoch_done():
            for client, update in visit.updates():
                self.server.take(client, update)
            self.visit = None
        metrics = {**metrics, **self._finish_rounds()}
        self.releasing.purse.passed(self.step)
        self._mind_the_budget()
        return metrics

    def state_dict(self) -> StateDict:
        constants = self._constants()
        purse = self.releasing.purse
        return {
            "state": {
                **self.record.to_state(),
                "privacy": purse.figures() if self.config.is_private else None,
                "clients": self.server.lines(),
                "partition": self._picture(),
            },
            **self.server.state_dict(self.visit),
            **({"spent": purse.path} if self.config.is_private else {}),
            **({"constants": constants} if constants else {}),
        }

    def load_state_dict(self, state: StateDict) -> None:
        state = {"constants": {}, **state}
        if missing := {"state", "model", "server", "clients"} - state.keys():
            raise IncompatibleState(f"the state lacks {', '.join(sorted(missing))}")
        if ("spent" in state) != self.config.is_private:
            raise IncompatibleState(
                "the state keeps privacy and the config does not, or the other way round"
            )
        workshop, constants = self.workshop, state["constants"]
        if constants != self._constants():  # what was measured then holds, not what is measured now
            workshop = self._make_workshop(constants)
        record = Record(self.config, workshop.schedule).from_state(state["state"])
        server = Server(workshop)
        visit_state = server.check(state, record)
        releasing = Releasing(workshop, self._thawed(state, record))
        visit = server.load_state_dict(state, record, visit_state)
        self.workshop, self.server, self.releasing = workshop, server, releasing
        self.record, self.visit = record, visit
        self._mind_the_budget()

    def result(self) -> Mapping[str, Any]:
        best, history = self.record.best, self.record.history
        result: dict[str, Any] = {
            "recipe": self.config.recipe,
            "strategy": self.config.server.strategy,
            "final": dict(history[-1]) if history else {},
            "best": {
                "metric": self.config.monitor,
                "mode": self.config.mode,
                "value": best.metric,
                "round": best.round,
            },
            "rounds": len(history),
            "client_epochs": self.step,
            "clients": len(self.workshop.parts),
            "parameters": self.server.parameters.numel(),
            "warnings": warnings_of(self.config, len(self.workshop.parts)),
            "details": dict(self.workshop.ingredients.description),
        }
        if self.config.is_private:
            result["privacy"] = self.releasing.summary()
        return result | ({"reason": REASON} if self.record.is_spent else {})

    def _visit(self) -> Visit | Together:
        """Return who is in training, which comes to the server's model where it is new."""
        if self.visit is None:
            client = self.record.client
            if client is None:
                raise RuntimeError("a trained round was not finished")
            self.visit = self.server.receive(client, self.record.number)
        return self.visit

    def _finish_rounds(self) -> dict[str, float]:
        """Finish the round if its clients are done, and further ones that have none."""
        metrics: dict[str, float] = {}
        while self.record.is_round_trained and not self.record.is_spent:
            entry = self.releasing.of_round(self.server, self.record)
            if entry is not None and not self._spend(entry):
                break
            measured = self.server.finish_round(self.record.number, entry)
            if self.config.is_private:
                measured["epsilon"] = self.releasing.purse.epsilon
            if self.record.round_done(measured, self.record.chosen):
                self.server.keep_best()
            metrics = measured
        return metrics

    def _spend(self, entry: Entry) -> bool:
        """Write a release down before it happens; False, and the run is over, if it may not."""
        if not self.releasing.purse.affords(entry):
            self.record.is_spent = True
            return False
        self.releasing.purse.spend(entry)
        return True

    def _mind_the_budget(self) -> None:
        """See whether the next release would exceed the budget; then there is no next step."""
        if self.record.is_over or self.config.privacy.target_epsilon is None:
            return
        self.record.is_spent |= not self.releasing.is_next_affordable(self.record)

    def _thawed(self, state: StateDict, record: Record) -> Purse:
        """Return what was spent up to a state. Raises LedgerMismatch, IncompatibleState."""
        purse = self.releasing.purse
        if not self.config.is_private:
            return purse
        if not is_path(state["spent"]):
            raise IncompatibleState("what was spent is not the stream of a federated run")
        return purse.thawed(state["spent"], state["state"].get("privacy") or {}, record.step)

    def _make_workshop(self, constants: Mapping[str, Any]) -> Workshop:
        return Workshop(self.config, self.inputs, self.device, self.secrets, constants)

    def _constants(self) -> dict[str, Any]:
        return dict(self.workshop.ingredients.constants)

    def _picture(self) -> dict[str, Any] | None:
        """Return the sizes of the clients' parts; where clients are private, they are too."""
        if self.config.has_users_noised:
            return None
        classes = self.workshop.federation.classes
        parts = self.workshop.parts
        return dict(picture(parts, classes, with_classes=not self.config.is_private))
