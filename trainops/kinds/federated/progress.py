"""Where a federated run stands and what its rounds came to: the part of its state people read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainops.kinds.federated.options import FederatedOptions
from trainops.kinds.federated.schedule import RoundSchedule
from trainops.quantities import plural
from trainops.runtime import lossless
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.position import completed


@dataclass(frozen=True, slots=True)
class BestRound:
    """The best completed round by the monitored metric; nothing where none was finite."""

    metric: float | None = None
    round: int | None = None


@dataclass(slots=True)
class FederatedProgress:
    """The place within a round, and a line for each completed one; all else follows from these.

    `done` are the clients of the current round whose epochs are over, in order; `epoch` counts
    those of the next one, or of all at once. `is_spent`: the budget allows no further step.
    `dropped` are the places of those clients of the current round, among all it chose, that it went
    on without; their epochs count as passed. They are places and no numbers, since a state may not
    tell who takes part. `differs` names in what machines of clients were not as the server's.
    """

    config: FederatedOptions
    schedule: RoundSchedule
    history: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    epoch: int = 0
    is_spent: bool = False
    dropped: list[int] = field(default_factory=list)
    differs: set[str] = field(default_factory=set)
    _best: BestRound = field(default=BestRound(), repr=False)  # of the first `_num_judged` lines
    _num_judged: int = field(default=0, repr=False)

    @property
    def number(self) -> int:
        """The current round, from 1; one more than there are once all are completed."""
        return len(self.history) + 1

    @property
    def is_over(self) -> bool:
        return self.number > self.config.rounds

    @property
    def chosen(self) -> tuple[int, ...]:
        """The clients of the current round."""
        return () if self.is_over else self.schedule.chosen(self.number)

    @property
    def client(self) -> int | None:
        """The client that trains next; None where the round has no further one."""
        return self.chosen[self.done] if self.done < len(self.chosen) else None

    @property
    def taken(self) -> tuple[int, ...]:
        """The clients of the current round whose epochs are over, without those dropped."""
        passed = enumerate(self.chosen[: self.done])
        return tuple(client for place, client in passed if place not in self.dropped)

    def name_of(self, client: int) -> str:
        """Return what people call a client of the round; nothing that chance keeps secret."""
        if not self.schedule.is_by_chance:
            return f"client {client}"
        return f"client at place {self.chosen.index(client) + 1}"

    @property
    def num_dropped(self) -> int:
        """The clients that rounds went on without, all rounds together."""
        return len(self.dropped) + sum(int(line.get("dropped", 0)) for line in self.history)

    @property
    def is_round_trained(self) -> bool:
        return not self.is_over and self.client is None

    @property
    def step(self) -> int:
        before = self.schedule.steps_before(self.number)
        return before + self.done * self.config.local_epochs + self.epoch * self.width

    @property
    def width(self) -> int:
        """How many clients are in training at a time."""
        return max(1, len(self.chosen)) if self.config.batched_clients else 1

    @property
    def total_steps(self) -> int:
        return self.step if self.is_spent else self.schedule.total_steps

    @property
    def place(self) -> str:
        if self.is_over or not self.chosen:
            return self.rounds_completed
        num_clients = plural(len(self.chosen), "client")
        if self.config.batched_clients:
            epochs = completed("epoch", self.epoch, self.config.local_epochs)
            return f"{self.rounds_completed}, {num_clients} at once, {epochs}"
        return f"{self.rounds_completed}, {self.done} of {num_clients} done"

    @property
    def rounds_completed(self) -> str:
        return completed("round", self.number - 1, self.config.rounds)

    @property
    def best(self) -> BestRound:
        """Return the first of the best rounds, so that a tie changes nothing."""
        sign = 1 if self.config.mode == "min" else -1
        for line in self.history[self._num_judged :]:  # lines are added, and never changed
            value, best = line[self.config.monitor], self._best.metric
            if math.isfinite(value) and (best is None or sign * value < sign * best):
                self._best = BestRound(value, line["round"])
        self._num_judged = len(self.history)
        return self._best

    def epoch_done(self) -> bool:
        """Move past an epoch of who is in training; return whether it was the last of the round."""
        self.epoch += 1
        if self.epoch < self.config.local_epochs:
            return False
        self.done, self.epoch = self.done + self.width, 0
        return True

    def client_dropped(self) -> None:
        """Go on without the next client of the round, which is not in training."""
        self.dropped.append(self.done)
        self.done += 1

    def round_done(self, metrics: Mapping[str, float]) -> bool:
        """Write the round's line and go to the next; return whether it was the best so far."""
        without = {"dropped": len(self.dropped)} if self.dropped else {}
        line = {"round": self.number, "clients": len(self.taken), **without, **metrics}
        self.history.append(line)
        self.done, self.epoch, self.dropped = 0, 0, []
        return self.best.round == len(self.history)

    def to_state(self) -> dict[str, Any]:
        """Return the JSON state. "metric" is there only where it was measured on this model.

        Where chance decides who takes part, it does not say who: what privacy gains by chance it
        gains only while that is unknown.
        """
        is_public = not self.schedule.is_by_chance
        best, last = self.best, self.history[-1] if self.history else {}
        is_between = not (self.done or self.epoch)
        return {
            "recipe": self.config.recipe,
            "round": len(self.history),
            "rounds": self.config.rounds,
            "num_clients": self.schedule.num_clients,
            "num_chosen": len(self.chosen),
            "chosen": list(self.chosen) if is_public else None,
            "clients_done": self.done,
            "client": self.client if is_public else None,
            **({"dropped": list(self.dropped)} if self.dropped else {}),
            **({"differs": sorted(self.differs)} if self.differs else {}),
            "client_epoch": self.epoch,
            "local_epochs": self.config.local_epochs,
            "is_budget_spent": self.is_spent,
            "best_metric": best.metric,
            "best_round": best.round,
            "monitor": self.config.monitor,
            "mode": self.config.mode,
            "metric": last.get(self.config.monitor) if is_between else None,
            "round_history": [dict(line) for line in self.history],
        }

    def from_state(self, state: Any) -> "FederatedProgress":
        """Return the record that the state describes. Raises IncompatibleState.

        Whatever follows from something else in the state must agree with it. How many rounds there
        are is the config's to say: a fork may go on for more.
        """
        try:
            progress = FederatedProgress(
                self.config,
                self.schedule,
                [dict(line) for line in state["round_history"]],
                int(state["clients_done"]),
                int(state["client_epoch"]),
                bool(state["is_budget_spent"]) and state["rounds"] == self.config.rounds,
                [int(place) for place in state.get("dropped", ())],
                set(state.get("differs", ())),
            )
            expected = progress.to_state() | {"rounds": state["rounds"]}
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the state cannot be read: {error!r}") from error
        progress.check()
        after_end = len(progress.history) == state["rounds"]  # where a fork goes on for more
        for name, value in expected.items():
            if (
                name in ("num_chosen", "chosen", "client") and after_end
            ) or name == "is_budget_spent":
                continue
            if name not in state or lossless.dumps(value) != lossless.dumps(state[name]):
                raise IncompatibleState(
                    f"{name} is {state.get(name)!r}, but by the rest of the state {value!r}"
                )
        return progress

    def check(self) -> None:
        """Raise IncompatibleState unless this is a place between two steps of the schedule."""
        numbers = [line.get("round") for line in self.history]
        is_place = (
            numbers == list(range(1, len(self.history) + 1))
            and len(self.history) <= self.config.rounds
            and 0 <= self.done <= len(self.chosen)
            and 0 <= self.epoch < self.config.local_epochs
            and (self.client is not None or self.epoch == 0)
            and self.done % self.width == 0
            and self.dropped == sorted({place for place in self.dropped if 0 <= place < self.done})
        )
        if not is_place:
            raise IncompatibleState(
                f"round {self.number}, {self.done} clients and {self.epoch} epochs are no place "
                f"in {self.config.rounds} rounds of {len(self.chosen)} clients"
            )
