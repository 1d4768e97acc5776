"""Federated training: one step is one local epoch of one client."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trainops.kinds.federated.client import read_client
from trainops.kinds.federated.config import FederatedConfig
from trainops.kinds.federated.distributed import Distributed
from trainops.kinds.federated.drawing import Secrets
from trainops.kinds.federated.limits import warnings_of
from trainops.kinds.federated.partition import picture
from trainops.kinds.federated.path import entries_of, is_path
from trainops.kinds.federated.purse import Purse
from trainops.kinds.federated.record import Record
from trainops.kinds.federated.releasing import Releasing, say_rates
from trainops.kinds.federated.server import Server
from trainops.kinds.federated.together import Together, require_stackable
from trainops.kinds.federated.visit import Visit
from trainops.kinds.federated.workshop import Workshop, require_gradients_of_each
from trainops.learning.validation import Validation
from trainops.runtime import reproducibility
from trainops.runtime.attempt import RANDOM
from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import Metrics, StateDict
from trainops.runtime.ledger import Entry, MemoryLedger, PrivacyLedger
from trainops.runtime.receipt import compare_environments
from trainops.runtime.subtasks import Delegates, Part

NUMBERS = ("round", "clients", "dropped")  # of a round's line; the rest was measured
REASON = "PRIVACY_BUDGET"  # why a run is over before its last round


@dataclass(frozen=True, slots=True)
class Finishing:
    """A round whose next model is made and being judged."""

    before: StateDict | None  # a copy from before it was made, where that may be asked for
    measured: dict[str, float]
    validation: Validation


class FederatedJob:
    """A recipe's examples, spread over clients that learn together.

    A step trains one client for one local epoch. The step that ends a round also makes the next
    model of what its clients sent, and judges it. Safe points lie between two local epochs: what
    clients of this round sent is kept, and the one in training goes on with its own model and
    optimizer. With `batched_clients` a step is an epoch of all clients of the round. The one before
    an evaluation has all that the round's clients sent, of which the next model is not made yet.
    """

    unit: ClassVar[str] = "client epoch"

    def __init__(
        self,
        config: FederatedConfig,
        inputs: Mapping[str, Path],
        ledger: PrivacyLedger | None = None,
        delegates: Delegates | None = None,
    ) -> None:
        self.config, self.inputs = config, inputs
        self.ledger = ledger or MemoryLedger()
        self.device = choose_device(config.device)
        self.secrets = Secrets(self.ledger.secret, config.seed)
        self.workshop = self._make_workshop({})
        self.server = Server(self.workshop)
        if config.batched_clients:
            require_stackable(self.workshop)
        if config.has_samples_noised:
            require_gradients_of_each(self.workshop)
        if config.has_samples_noised and config.has_users_noised:
            say_rates(self.workshop, self.ledger)
        self.releasing = Releasing(self.workshop, Purse(config.privacy, self.ledger))
        self.record = Record(config, self.workshop.schedule)
        if not any(entry.is_release for entry in self.ledger.spent()):  # else it goes on, or forks
            self.releasing.require_room(self.record)
        self.visit: Visit | Together | None = None
        is_distributed = delegates is not None and config.is_distributed
        self.distributed = Distributed(config, delegates) if is_distributed and delegates else None
        self._untold: dict[str, float] = {}  # of rounds without clients, before the first step
        self.in_parts = False
        self._finishing: Finishing | None = None  # under way; no part of the state
        self._mind_the_budget()

    @property
    def step(self) -> int:
        return self.record.step

    @property
    def total_steps(self) -> int:
        return self.record.total_steps

    @property
    def place(self) -> str:
        if self.distributed is not None and self.record.client is not None:
            return self.distributed.place(self.record)
        if self._finishing is not None:
            return f"{self.record.place}, {self._finishing.validation.place}"
        return self.record.place

    @property
    def is_evaluating(self) -> bool:
        return self._has_trained_round()

    def _has_trained_round(self) -> bool:
        """Whether the round is to be finished; one without clients is finished beside another."""
        record = self.record
        return record.is_round_trained and bool(record.chosen) and not record.is_spent

    @property
    def checkpoint_steps(self) -> int:
        return self.config.checkpoint.every_client_epochs

    def milestones(self) -> int:
        """Return how many checkpoints were asked for, so that clients elsewhere can begin."""
        return self.distributed.asked if self.distributed else 0

    def advance(self) -> Metrics:
        if not self.is_evaluating:
            self._untold |= self._finish_rounds({})  # at the beginning, that nobody takes part in
            if self.record.is_over or self.record.is_spent:
                return self._told()
            if not self._train_next():
                return {} if self._is_elsewhere else self._told()
            if self.in_parts and self._has_trained_round():
                return {}
        measured = self._finish_round() if self._has_trained_round() else {}
        if measured is None and self._has_trained_round():
            return {}
        self._step_done(measured or {})
        return self._told()

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the next client trains elsewhere, and is waited for."""
        return self.distributed is not None and self.visit is None

    def _train_next(self) -> bool:
        """Train the next local epoch, or take over what was done elsewhere; False: not (yet)."""
        return self._take_next() if self._is_elsewhere else self._train()

    def _step_done(self, measured: dict[str, float]) -> None:
        self._untold |= self._finish_rounds(measured)
        self.releasing.purse.passed(self.step)
        self._mind_the_budget()

    def _told(self) -> Metrics:
        metrics, self._untold = self._untold, {}
        return metrics

    def state_dict(self) -> StateDict:
        if self._finishing is not None and self._finishing.before is not None:
            return dict(self._finishing.before)
        constants, layout, purse = self._constants(), self.workshop.layout, self.releasing.purse
        return {
            "state": {
                **self.record.to_state(),
                **({"frozen": list(layout.frozen)} if layout.frozen else {}),
                **({"tied": dict(layout.tied)} if layout.tied else {}),
                "privacy": purse.figures() if self.config.is_private else None,
                "clients": self.server.lines(),
                "partition": self._picture(),
            },
            **self.server.state_dict(self.visit, self.record.number),
            **({"spent": purse.path} if self.config.is_private else {}),
            **({"constants": constants} if constants else {}),
        }

    def objects(self) -> Mapping[str, Any]:
        return self.workshop.objects()

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
        self.record, self.visit, self._finishing = record, visit, None
        told = record.history[-1] if record.history and not record.step else {}
        self._untold = {name: each for name, each in told.items() if name not in NUMBERS}
        self._mind_the_budget()

    @property
    def notes(self) -> Mapping[str, str]:
        """What a receipt says of a restored part."""
        return {"spent": self.releasing.purse.note} if self.config.is_private else {}

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
            "client_epochs": self.step - self.record.num_dropped * self.config.local_epochs,
            "clients": len(self.workshop.parts),
            "parameters": self.server.parameters.numel(),
            "warnings": self._warnings(),
            "details": dict(self.workshop.ingredients.description),
        }
        if num_dropped := self.record.num_dropped:
            result["dropped"] = num_dropped
        if self.record.differs:
            result["differs"] = sorted(self.record.differs)
        if self.config.is_private:
            result["privacy"] = self.releasing.summary()
        return result | ({"reason": REASON} if self.record.is_spent else {})

    def _train(self) -> bool:
        """Train one local epoch of the next client; False, and the run is over, if it may not."""
        visit = self._visit()
        entry = self.releasing.of_epoch(visit, self.record)
        if entry is not None and not self._spend(entry):
            return False
        self.server.train(visit, entry.noise if entry else "", self.step + 1)
        self._epoch_done(visit)
        return True

    def _epoch_done(self, visit: Visit | Together) -> None:
        if self.record.epoch_done():
            for client, update in visit.updates():
                self.server.take(client, update)
            self.visit = None
            self.server.begin_streams("server", visit.number, visit.client)

    def _take_next(self) -> bool:
        """Take over what the next client came to elsewhere; False where that is not known yet."""
        if self.distributed is None:
            return False
        returned = self.distributed.next(self.record, self._parts)
        if returned is None:
            self.record.is_spent |= not self.distributed.is_next_out(self.record)
            return False
        self.releasing.purse.learn(returned.spent, self.step)
        if returned.checkpoint is None:
            self.record.client_dropped()
        else:
            self._take(returned.client, returned.checkpoint)
        return True

    def _parts(self, record: Record) -> list[Part]:
        """Return what the clients of the round are to do that are yet to train."""
        identity = self.server.identity()
        return [
            Part(
                record.number, client, epochs, begins_with=identity,
                name=record.name_of(client), label=self.config.label_of(client),
            )
            for client, epochs in self.releasing.plan(record).items()
        ]  # fmt: skip

    def _take(self, client: int, checkpoint: Candidate) -> None:
        """Go through what a client did as if it had been done here. Raises IncompatibleState."""
        found, state = CheckpointStore(checkpoint.path.parent, identity={}).restore(checkpoint)
        compared = compare_environments(reproducibility.environment(), found.environment)
        self.record.differs |= {each.part for each in compared if not each.exact}
        plain, visiting = read_client(state, self.server, self.record, client)
        visit = self.visit = self.server.receive(client, self.record.number)
        visit.load_state_dict(visiting)
        if self.config.is_private:
            for entry in entries_of(state["spent"], self.ledger.secret):
                self.releasing.purse.spend(entry)
        for _ in range(visit.epoch):
            self._epoch_done(visit)
        if self.visit is not None:  # the budget ended it in the middle: so do the random streams
            reproducibility.load_state_dict(state[RANDOM])
        self.record.is_spent |= bool(plain["is_budget_spent"])

    def _visit(self) -> Visit | Together:
        """Return who is in training, which comes to the server's model where it is new."""
        if self.visit is None:
            client = self.record.client
            if client is None:
                raise RuntimeError("a trained round was not finished")
            self.visit = self.server.receive(client, self.record.number)
            self.server.begin_streams("client", self.record.number, client)
        return self.visit

    def _finish_rounds(self, measured: dict[str, float]) -> dict[str, float]:
        """Finish the round if its clients are done, and further ones that have none.

        Returns what the last of them measured; `measured` where there was none.
        """
        while self.record.is_round_trained and not self.record.is_spent:
            finished = self._finish_round(is_whole=True)
            if finished is None:
                break
            measured = finished
        return measured

    def _finish_round(self, *, is_whole: bool = False) -> dict[str, float] | None:
        """Make the next model and judge it, a batch at a time if `in_parts` and not `is_whole`.

        Returns what was measured; None where it is not done yet, or may not be, which ends the run.
        """
        in_parts = self.in_parts and not is_whole
        if self._finishing is None:
            before = freeze(self.state_dict()) if in_parts else None
            entry = self.releasing.of_round(self.server, self.record)
            if entry is not None and not self._spend(entry):
                return None
            measured = self.server.finish_round(self.record.number, entry, self.step)
            self._finishing = Finishing(before, measured, Validation(self.workshop))
        finishing = self._finishing
        if not finishing.validation.go_on(in_parts=in_parts):
            return None
        self._finishing, measured = None, finishing.measured
        if self.workshop.validation is not None:
            means = finishing.validation.averages.means()
            measured = measured | self.workshop.in_units(means, "val")
        if self.config.is_private:
            measured["epsilon"] = self.releasing.purse.epsilon
        if self.record.round_done(measured):
            self.server.keep_best()
        return measured

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

    def _warnings(self) -> list[str]:
        told = warnings_of(self.config, len(self.workshop.parts))
        return [*told, *filter(None, [self.releasing.purse.warning])]

    def _constants(self) -> dict[str, Any]:
        return dict(self.workshop.ingredients.constants)

    def _picture(self) -> dict[str, Any] | None:
        """Return the sizes of the clients' parts; where clients are private, they are too."""
        if self.config.has_users_noised:
            return None
        return picture(self.config, self.workshop.federation, self.workshop.parts)
