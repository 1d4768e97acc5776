"""Federated training: one step is one local epoch of one client."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trainops.kinds.federated.budget import PrivacyBudget
from trainops.kinds.federated.client import read_client
from trainops.kinds.federated.config import FederatedConfig
from trainops.kinds.federated.context import FederatedContext, require_gradients_of_each
from trainops.kinds.federated.distributed import Distributed
from trainops.kinds.federated.fast.batched_clients import BatchedClients, require_stackable
from trainops.kinds.federated.limits import NUM_ROUNDS_FOLLOWED, warnings_of
from trainops.kinds.federated.local_training import LocalTraining
from trainops.kinds.federated.noise_accounting import NoiseAccounting, say_rates
from trainops.kinds.federated.partition import picture
from trainops.kinds.federated.progress import FederatedProgress
from trainops.kinds.federated.release_log import entries_of, is_path
from trainops.kinds.federated.releases import Release, ReleaseLedger
from trainops.kinds.federated.rng import Secrets
from trainops.kinds.federated.server import FederatedServer
from trainops.learning.validation import Validation
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.checkpointer import RANDOM
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import Metrics, StateDict
from trainops.runtime.ledger import Ledger, MemoryLedger
from trainops.runtime.receipt import compare_environments
from trainops.runtime.subtasks import Subtask, SubtaskPort

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
    clients of this round sent is kept, and the one in training continues with its own model and
    optimizer. With `batched_clients` a step is an epoch of all clients of the round. The one before
    an evaluation has all that the round's clients sent, of which the next model is not made yet.
    """

    unit: ClassVar[str] = "client epoch"
    weights: ClassVar[Mapping[str, str]] = {"model": "model"}  # the server's

    def __init__(
        self,
        config: FederatedConfig,
        inputs: Mapping[str, Path],
        ledger: Ledger | None = None,
        subtasks: SubtaskPort | None = None,
    ) -> None:
        self.config, self.inputs = config, inputs
        self.ledger = ReleaseLedger(ledger or MemoryLedger())
        self.device = choose_device(config.device)
        self.secrets = Secrets(self.ledger.secret, config.seed)
        self.context = self._make_context({})
        self.server = FederatedServer(self.context)
        if config.batched_clients:
            require_stackable(self.context)
        if config.has_samples_noised:
            require_gradients_of_each(self.context)
        if config.has_samples_noised and config.has_users_noised:
            say_rates(self.context, self.ledger)
        self.noise_accounting = NoiseAccounting(
            self.context, PrivacyBudget(config.privacy, self.ledger)
        )
        self.progress = FederatedProgress(config, self.context.schedule)
        if not any(
            entry.is_release for entry in self.ledger.releases()
        ):  # else it goes on, or forks
            self.noise_accounting.require_room(self.progress)
        self.local_training: LocalTraining | BatchedClients | None = None
        is_distributed = subtasks is not None and config.is_distributed
        self.distributed = Distributed(config, subtasks) if is_distributed and subtasks else None
        self._unreported: dict[str, float] = {}  # of rounds without clients, before the first step
        self.in_parts = False
        self._finishing: Finishing | None = None  # under way; no part of the state
        self._mind_the_budget()

    @property
    def step(self) -> int:
        return self.progress.step

    @property
    def total_steps(self) -> int:
        return self.progress.total_steps

    @property
    def place(self) -> str:
        if self.distributed is not None and self.progress.client is not None:
            return self.distributed.place(self.progress)
        if self._finishing is not None:
            return f"{self.progress.place}, {self._finishing.validation.place}"
        return self.progress.place

    @property
    def is_evaluating(self) -> bool:
        return self._has_trained_round()

    def _has_trained_round(self) -> bool:
        """Whether the round is to be finished; one without clients is finished beside another."""
        progress = self.progress
        return progress.is_round_trained and bool(progress.chosen) and not progress.is_spent

    @property
    def checkpoint_steps(self) -> int:
        return self.config.checkpoint.every_client_epochs

    def milestones(self) -> int:
        """Return how many checkpoints were asked for, so that clients elsewhere can begin."""
        return self.distributed.asked if self.distributed else 0

    def advance(self) -> Metrics:
        if not self.is_evaluating:
            # At the beginning: rounds in which no client takes part.
            self._unreported |= self._finish_rounds({})
            if self.progress.is_over or self.progress.is_spent:
                return self._take_metrics()
            if not self._train_next():
                return {} if self._is_elsewhere else self._take_metrics()
            if self.in_parts and self._has_trained_round():
                return {}
        measured = self._finish_round() if self._has_trained_round() else {}
        if measured is None and self._has_trained_round():
            return {}
        self._step_done(measured or {})
        return self._take_metrics()

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the next client trains elsewhere, and is waited for."""
        return self.distributed is not None and self.local_training is None

    def _train_next(self) -> bool:
        """Train the next local epoch, or take over what was done elsewhere; False: not (yet)."""
        return self._take_next() if self._is_elsewhere else self._train()

    def _step_done(self, measured: dict[str, float]) -> None:
        self._unreported |= self._finish_rounds(measured)
        self.noise_accounting.budget.passed(self.step)
        self._mind_the_budget()

    def _take_metrics(self) -> Metrics:
        metrics, self._unreported = self._unreported, {}
        return metrics

    def state_dict(self) -> StateDict:
        if self._finishing is not None and self._finishing.before is not None:
            return dict(self._finishing.before)
        constants, layout, budget = (
            self._constants(),
            self.context.layout,
            self.noise_accounting.budget,
        )
        return {
            "state": {
                **self.progress.to_state(),
                **({"frozen": list(layout.frozen)} if layout.frozen else {}),
                **({"tied": dict(layout.tied)} if layout.tied else {}),
                "privacy": budget.figures() if self.config.is_private else None,
                "clients": self.server.lines(),
                "partition": self._picture(),
            },
            **self.server.state_dict(self.local_training, self.progress.number),
            **({"spent": budget.path} if self.config.is_private else {}),
            **({"constants": constants} if constants else {}),
        }

    def objects(self) -> Mapping[str, Any]:
        return self.context.objects()

    def load_state_dict(self, state: StateDict) -> None:
        state = {"constants": {}, **state}
        if missing := {"state", "model", "server", "clients"} - state.keys():
            raise IncompatibleState(f"the state lacks {', '.join(sorted(missing))}")
        if ("spent" in state) != self.config.is_private:
            raise IncompatibleState("only one of the state and the config uses privacy")
        context, constants = self.context, state["constants"]
        if constants != self._constants():  # what was measured then holds, not what is measured now
            context = self._make_context(constants)
        progress = FederatedProgress(self.config, context.schedule).from_state(state["state"])
        server = FederatedServer(context)
        visit_state = server.check(state, progress)
        noise_accounting = NoiseAccounting(context, self._thawed(state, progress))
        local_training = server.load_state_dict(state, progress, visit_state)
        self.context, self.server, self.noise_accounting = context, server, noise_accounting
        self.progress, self.local_training, self._finishing = progress, local_training, None
        line = progress.history[-1] if progress.history and not progress.step else {}
        self._unreported = {name: each for name, each in line.items() if name not in NUMBERS}
        self._mind_the_budget()

    @property
    def notes(self) -> Mapping[str, str]:
        """What a receipt says of a restored part."""
        return {"spent": self.noise_accounting.budget.note} if self.config.is_private else {}

    def result(self) -> Mapping[str, Any]:
        best, history = self.progress.best, self.progress.history
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
            "client_epochs": self.step - self.progress.num_dropped * self.config.local_epochs,
            "clients": len(self.context.parts),
            "parameters": self.server.parameters.numel(),
            "warnings": self._warnings(),
            "details": dict(self.context.ingredients.description),
        }
        if num_dropped := self.progress.num_dropped:
            result["dropped"] = num_dropped
        if self.progress.differs:
            result["differs"] = sorted(self.progress.differs)
        if self.config.is_private:
            result["privacy"] = self.noise_accounting.summary()
        return result | ({"reason": REASON} if self.progress.is_spent else {})

    def _train(self) -> bool:
        """Train one local epoch of the next client; False, and the run is over, if it may not."""
        local_training = self._visit()
        entry = self.noise_accounting.of_epoch(local_training, self.progress)
        if entry is not None and not self._spend(entry):
            return False
        self.server.train(local_training, entry.noise if entry else "", self.step + 1)
        self._epoch_done(local_training)
        return True

    def _epoch_done(self, local_training: LocalTraining | BatchedClients) -> None:
        if self.progress.epoch_done():
            for client, update in local_training.updates():
                self.server.take(client, update)
            self.local_training = None
            self.server.begin_streams("server", local_training.number, local_training.client)

    def _take_next(self) -> bool:
        """Take over what the next client came to elsewhere; False where that is not known yet."""
        if self.distributed is None:
            return False
        result = self.distributed.next(self.progress, self._subtasks)
        if result is None:
            self.progress.is_spent |= not self.distributed.is_next_out(self.progress)
            return False
        spent = [Release.from_entry(each) for each in result.spent]
        self.noise_accounting.budget.learn(spent, self.step)
        if result.checkpoint is None:
            self.progress.client_dropped()
        else:
            self._take(result.index, result.checkpoint)
        return True

    def _subtasks(self, progress: FederatedProgress) -> list[Subtask]:
        """Return what the clients of the round are to do that are yet to train."""
        identity = self.server.identity()
        return [
            Subtask(
                progress.number, client, {"epochs": epochs}, epochs, begins_with=identity,
                name=progress.name_of(client), label=self.config.label_of(client),
            )
            for client, epochs in self.noise_accounting.plan(progress).items()
        ]  # fmt: skip

    def _take(self, client: int, checkpoint: Candidate) -> None:
        """Go through what a client did as if it had been done here. Raises IncompatibleState."""
        found, state = CheckpointStore(checkpoint.path.parent, identity={}).restore(checkpoint)
        compared = compare_environments(reproducibility.environment(), found.environment)
        self.progress.differs |= {each.part for each in compared if not each.exact}
        plain, visiting = read_client(state, self.server, self.progress, client)
        local_training = self.local_training = self.server.receive(client, self.progress.number)
        local_training.load_state_dict(visiting)
        if self.config.is_private:
            for entry in entries_of(state["spent"], self.ledger.secret):
                self.noise_accounting.budget.spend(entry)
        for _ in range(local_training.epoch):
            self._epoch_done(local_training)
        if (
            self.local_training is not None
        ):  # the budget ended it in the middle: so do the random streams
            reproducibility.load_state_dict(state[RANDOM])
        self.progress.is_spent |= bool(plain["is_budget_spent"])

    def _visit(self) -> LocalTraining | BatchedClients:
        """Return who is in training, which comes to the server's model where it is new."""
        if self.local_training is None:
            client = self.progress.client
            if client is None:
                raise RuntimeError("a trained round was not finished")
            self.local_training = self.server.receive(client, self.progress.number)
            self.server.begin_streams("client", self.progress.number, client)
        return self.local_training

    def _finish_rounds(self, measured: dict[str, float]) -> dict[str, float]:
        """Finish the round if its clients are done, and further ones that have none.

        Returns what the last of them measured; `measured` where there was none.
        """
        while self.progress.is_round_trained and not self.progress.is_spent:
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
            entry = self.noise_accounting.of_round(self.server, self.progress)
            if entry is not None and not self._spend(entry):
                return None
            measured = self.server.finish_round(self.progress.number, entry, self.step)
            self._finishing = Finishing(before, measured, Validation(self.context))
        finishing = self._finishing
        if not finishing.validation.go_on(in_parts=in_parts):
            return None
        self._finishing, measured = None, finishing.measured
        if self.context.validation is not None:
            means = finishing.validation.averages.means()
            measured = measured | self.context.in_units(means, "val")
        if self.config.is_private:
            measured["epsilon"] = self.noise_accounting.budget.epsilon
        if self.progress.number % -(-self.config.rounds // NUM_ROUNDS_FOLLOWED) == 0:
            self._unreported |= self.server.figures_of(self.progress.taken)
        if self.progress.round_done(measured):
            self.server.keep_best()
        return measured

    def _spend(self, entry: Release) -> bool:
        """Write a release down before it happens; False, and the run is over, if it may not."""
        if not self.noise_accounting.budget.affords(entry):
            self.progress.is_spent = True
            return False
        self.noise_accounting.budget.spend(entry)
        return True

    def _mind_the_budget(self) -> None:
        """See whether the next release would exceed the budget; then there is no next step."""
        if self.progress.is_over or self.config.privacy.target_epsilon is None:
            return
        self.progress.is_spent |= not self.noise_accounting.is_next_affordable(self.progress)

    def _thawed(self, state: StateDict, progress: FederatedProgress) -> PrivacyBudget:
        """Return what was spent up to a state. Raises LedgerMismatch, IncompatibleState."""
        budget = self.noise_accounting.budget
        if not self.config.is_private:
            return budget
        if not is_path(state["spent"]):
            raise IncompatibleState("the spent budget is not a stream of a federated run")
        return budget.thawed(state["spent"], state["state"].get("privacy") or {}, progress.step)

    def _make_context(self, constants: Mapping[str, Any]) -> FederatedContext:
        return FederatedContext(self.config, self.inputs, self.device, self.secrets, constants)

    def _warnings(self) -> list[str]:
        clients, per_round = len(self.context.parts), self.context.schedule.clients_per_round
        warnings = warnings_of(self.config, clients, per_round)
        return [*warnings, *filter(None, [self.noise_accounting.budget.warning])]

    def _constants(self) -> dict[str, Any]:
        return dict(self.context.ingredients.constants)

    def _picture(self) -> dict[str, Any] | None:
        """Return the sizes of the clients' parts; where clients are private, they are too."""
        if self.config.has_users_noised:
            return None
        return picture(self.config, self.context.federation, self.context.parts)
