"""Clients that train as operations of their own, in this process: a short worker runtime."""

from dataclasses import replace
from pathlib import Path

from tests.engines.contract import MachineDied, ScriptedSupervisor
from trainops.kind import KINDS
from trainops.kinds.federated.releases import FIELDS
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.store import Candidate, CheckpointPolicy, CheckpointStore
from trainops.runtime.loop import Succeeded, run
from trainops.runtime.subtasks import Subtask, SubtaskResult


class Elsewhere:
    """Trains each client when the server waits for updates, the last one sent first.

    It outlives the server's attempts, as rows do. `lost` are clients that nobody trains, `dies_at`
    is a client and an epoch of it that are done when its machine dies, once.
    """

    def __init__(self, root, config, ledger=None, *, lost=(), failing=(), dies_at=None):
        self.root, self.config, self.ledger = Path(root), config, ledger
        self.lost, self.failing, self.dies_at = lost, failing, dies_at
        self.supervisor, self.problem = ScriptedSupervisor(), ""
        self.done, self.waiting, self.dropped = {}, [], set()
        self.sent, self.age = [], 0.0

    @property
    def saved_step(self):
        steps = [each.step for each in self.supervisor.checkpoints]
        steps += [each.step for each in self.supervisor.receipts if each.checkpoint]
        return max(steps, default=None)

    def begin(self, supervisor):
        """A new attempt of the server: what is done stays done."""
        self.supervisor, self.waiting = supervisor, []

    def given(self):
        newest = self.supervisor.checkpoints
        return Candidate(newest[-1].path, newest[-1].digest) if newest else self.restored

    def start(self, subtasks):
        self.age = 0.0
        self.sent.append(
            [(each.group, each.index, each.num_steps, each.label) for each in subtasks]
        )
        self.waiting = [replace(each, given=self.given()) for each in subtasks]

    def drop(self, group, indexes):
        self.dropped |= {(group, index) for index in indexes}

    def age_seconds(self, group):
        return self.age

    def results(self, seconds):
        for subtask in reversed(self.waiting):
            key = subtask.group, subtask.index
            if key in self.dropped:
                self.waiting.remove(subtask)
                return [SubtaskResult(*key, "dropped", spent=self._spent(subtask))]
            if subtask.index in self.failing:
                self.waiting.remove(subtask)
                return [SubtaskResult(*key, "failed", note="its disk burned")]
            if subtask.index not in self.lost:
                self.waiting.remove(subtask)
                return [self._result(subtask)]
        self.age += 1000.0
        return []

    def _result(self, subtask: Subtask):
        key = subtask.group, subtask.index
        if key not in self.done:
            streams = reproducibility.state_dict()
            self.done[key] = self._train(subtask)
            reproducibility.load_state_dict(streams)
        final = self.done[key]
        found = Candidate(final.path, final.digest)
        return SubtaskResult(*key, "done", found, self._spent(subtask))

    def _spent(self, subtask):
        entries = self.ledger.entries() if self.ledger else ()
        key = subtask.group, subtask.index
        return [each for each in entries if FIELDS.subtask(each.values) == key]

    def _train(self, subtask):
        """Run the client's attempts; the first dies at the given place."""
        saved = []
        for number in (1, 2):
            dies = number == 1 and self.dies_at == (subtask.group, subtask.index)
            supervisor = ScriptedSupervisor(at=1 if dies else None, dies=dies)
            root = self.root / f"op-{subtask.group}-{subtask.index}"
            store = CheckpointStore(
                root, identity={"attempt": number},
                candidates=[Candidate(each.path, each.digest) for each in saved[::-1]],
            )  # fmt: skip
            try:
                outcome = run(
                    lambda: KINDS["federated"].make_subtask(self.config, {}, self.ledger, subtask),
                    seed=self.config.seed, store=store, supervisor=supervisor,
                    policy=CheckpointPolicy(every_seconds=1e9),
                )  # fmt: skip
            except MachineDied:
                saved = supervisor.checkpoints
                continue
            assert isinstance(outcome, Succeeded), outcome
            return supervisor.checkpoints[-1]
        raise AssertionError("it died twice")


def go_distributed(case, root, elsewhere, ledger, *, at=None, dies=False, resume=(), number=1,
                   every_steps=None):  # fmt: skip
    """Run an attempt of the server; return its supervisor and how it ended."""
    supervisor = ScriptedSupervisor(at=at, dies=dies)
    elsewhere.begin(supervisor)
    candidates = [Candidate(each.path, each.digest) for each in resume]
    elsewhere.restored = candidates[0] if candidates else None
    try:
        outcome = run(
            lambda: KINDS["federated"].make_job(elsewhere.config, {}, ledger, elsewhere),
            seed=elsewhere.config.seed,
            store=CheckpointStore(root, identity={"attempt": number}, candidates=candidates),
            policy=CheckpointPolicy(every_steps=every_steps, every_seconds=1e9),
            supervisor=supervisor,
        )
    except MachineDied:
        assert dies
        outcome = None
    return supervisor, outcome
