"""How one attempt restores its job, keeps a frozen copy of it, and saves that beside the loop."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from trainops.runtime import provenance, rank_state, reproducibility
from trainops.runtime.checkpoint.manifest import Candidate, Checkpoint, CheckpointType
from trainops.runtime.checkpoint.snapshot import SafePoint, StatePosition, all_finite
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.errors import (
    AllCheckpointsCorrupted,
    CheckpointCorrupted,
    IncompatibleState,
    NotExact,
    SaveFailed,
    UnfreezableState,
)
from trainops.runtime.job import (
    Candid,
    Eventful,
    Foreseeing,
    Noting,
    Paced,
    Progress,
    ResumableJob,
    SameWhenPlain,
    StateDict,
    is_evaluating,
)
from trainops.runtime.ranks import NoRanks, Ranks, split
from trainops.runtime.receipt import (
    NEW_RUN,
    Receipt,
    ReceiptItem,
    compare_environments,
    uncertain,
    varies,
)
from trainops.runtime.supervisor import Supervisor

RANDOM = "random"  # the part of every checkpoint that holds the global random streams


class JobError(Exception):
    """Something in the job's own code went wrong; the cause says what."""


@contextmanager
def job_code() -> Iterator[None]:
    """Mark code whose errors are the job's."""
    try:
        yield
    except Exception as error:
        raise JobError from error


class Saving(threading.Thread):
    """A checkpoint in flight: written and committed while the loop goes on."""

    def __init__(
        self,
        kind: CheckpointType,
        place: StatePosition,
        write: Callable[[], Checkpoint],
        commit: Callable[[Checkpoint], None],
    ) -> None:
        super().__init__(name="saving", daemon=True)
        self.kind, self.place = kind, place
        self._write, self._commit = write, commit
        self._is_written = threading.Event()  # or never will be
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            checkpoint = self._write()
            self._is_written.set()
            self._commit(checkpoint)
        except BaseException as error:  # noqa: BLE001 - `land` raises it, where the loop asks
            self._error = error
        finally:
            self._is_written.set()

    def until_written(self) -> None:
        """Wait until it needs the frozen copy no more."""
        self._is_written.wait()

    def land(self) -> None:
        """Wait for its end; raise what went wrong in it."""
        self.join()
        if self._error is not None:
            raise self._error


@dataclass(slots=True)
class Checkpointer:
    """How one run restores and saves its job.

    There is one frozen copy of the state. A checkpoint is written from it while the job goes on,
    so at most one is in flight. The last one of a run does not wait for the commit of the one
    before, only for its bytes: the database may be away, and this one is still to be staged.
    All methods belong to the loop but `salvage`, which is for when that does not answer.
    """

    store: CheckpointStore
    policy: CheckpointPolicy
    supervisor: Supervisor
    safe_point: SafePoint
    ranks: Ranks = field(default_factory=NoRanks)
    saved: StatePosition | None = field(
        default=None, init=False
    )  # of the newest committed checkpoint
    logged: Mapping[str, float] = field(default_factory=dict, init=False)  # see `moved`; restored
    _savings: deque[Saving] = field(default_factory=deque, init=False)  # the oldest first
    _streams: StateDict | None = field(default=None, init=False)  # before the evaluation under way

    def restore(self, job: ResumableJob, *, requires_exact: bool = False) -> None:
        """Load the newest healthy candidate and say how exact that is, and a later one may be.

        Raises JobError. That is of NotExact where the resume is required to be exact and is not,
        and at the start where a later one could not be known to be.
        """
        receipt = Receipt(step=job.step)
        with job_code():
            of_job = dict(job.uncertain) if isinstance(job, Foreseeing) else {}
        if requires_exact:
            with job_code():
                _require_deterministic()
                _require_certain(of_job)
        if found := self._newest_healthy():
            checkpoint, state = found
            self.safe_point.restored(state)
            self.logged = state.get(RANDOM, {}).get(reproducibility.LOGGED, {})
            with job_code():
                receipt = _take_over(job, checkpoint, state, self.ranks, self.store.identity)
                if requires_exact:
                    _require_exact(receipt)
            self.saved = _place_of(job)
        if isinstance(job, Paced):
            self.policy.at_least_every(job.checkpoint_steps)
        if isinstance(job, Eventful):
            self.policy.follow(job.milestones)
        self.policy.saved(job.step)
        of_environment = uncertain(reproducibility.environment())
        self.supervisor.restored(replace(receipt, uncertain=of_environment | of_job))

    def keep_up(self, job: ResumableJob, progress: Progress) -> None:
        """Start what is due after an advance: a checkpoint, or a newer safe point.

        A checkpoint waits for the evaluation of its step: by that, lists compare it with others.
        """
        if not self.is_free():
            return
        if self.policy.is_due(progress.step) and not progress.is_evaluating:
            self.start_saving(job, CheckpointType.PERIODIC)
        elif self.safe_point.is_affordable() and self.safe_point.place != _place_of(job):
            self.freeze(job)

    def is_free(self) -> bool:
        """Whether no checkpoint is in flight; one that has landed is settled first."""
        if not any(saving.is_alive() for saving in self._savings):
            self.settle()
        return not self._savings

    def moved(self, progress: Progress, logged: Mapping[str, float]) -> None:
        """Remember the random streams where an evaluation begins: a resume begins it anew.

        logged: numbers that are not reported, which such a resume does not log again.
        """
        if not progress.is_evaluating:
            self._streams = None
        elif self._streams is None:
            waiting = {reproducibility.LOGGED: dict(logged)} if logged else {}
            self._streams = reproducibility.state_dict() | waiting

    def freeze(self, job: ResumableJob) -> None:
        """Copy the job's whole state into the safe point. Raises JobError."""
        with job_code():
            self.safe_point.take(_place_of(job), lambda: _capture(job, self._streams, self.ranks))

    def start_saving(self, job: ResumableJob, kind: CheckpointType) -> None:
        """Freeze the job as it stands and send the copy on its way. None may be in writing."""
        self.freeze(job)
        self.policy.saved(job.step)
        self._save_safe_point(kind)

    def save(self, job: ResumableJob, kind: CheckpointType) -> None:
        """Save the job as it stands, and wait until that is done; see `settle` for errors."""
        is_known = _place_of(job) == self.saved and kind is not CheckpointType.FINAL
        if not is_known:  # else stopped before the first step after a save: nothing is new
            for saving in self._savings:
                saving.until_written()
            self.start_saving(job, kind)
        self.settle()

    def save_what_was_good(self) -> None:
        """After a failure: commit the safe point, if it is newer than the last checkpoint.

        One with NaN in it is not saved: no run could continue from it.
        """
        try:
            self.settle()
            if self._is_worth_saving():
                self._save_safe_point(CheckpointType.FAILURE)
                self.settle()
        except JobError:
            return  # no state of this job can be saved; that it failed is being reported

    def salvage(self, kind: CheckpointType) -> None:
        """Commit the safe point, if it is newer than the last checkpoint, beside a loop that hangs.

        For a thread of the caller's. What is in flight is waited for, or only its bytes where the
        safe point is newer: the database, which the commit waits for, may be away. Raises
        SaveFailed and UnfreezableState, and whatever the supervisor raises at its commit.
        """
        for saving in tuple(self._savings):
            if saving.place == self.safe_point.place:
                saving.join()
            else:
                saving.until_written()
        with self.safe_point.lock:  # should the loop come to itself, it waits
            if not self._is_worth_saving():
                return
            place, checkpoint = self._frozen_place(), self._write(kind)
        self._commit(place, checkpoint)

    def _is_worth_saving(self) -> bool:
        place, state = self.safe_point.place, self.safe_point.state
        return place is not None and place > (self.saved or StatePosition(0)) and all_finite(state)

    def settle(self) -> None:
        """Wait for the checkpoints in flight, if there are any; only a final one must succeed.

        Raises JobError, SaveFailed, and whatever the supervisor raised at its commit.
        """
        while self._savings:
            self._settle(self._savings.popleft())

    def _settle(self, saving: Saving) -> None:
        try:
            saving.land()
        except UnfreezableState as error:  # what the job calls its state cannot be one
            raise JobError from error
        except SaveFailed as error:
            if saving.kind is CheckpointType.FINAL:
                raise
            self.supervisor.save_failed(error)

    def _save_safe_point(self, kind: CheckpointType) -> None:
        place = self._frozen_place()
        write, commit = partial(self._write_locked, kind), partial(self._commit, place)
        self._savings.append(Saving(kind, place, write, commit))

    def _write_locked(self, kind: CheckpointType) -> Checkpoint:
        with self.safe_point.lock:
            return self._write(kind)

    def _write(self, kind: CheckpointType) -> Checkpoint:
        """Write the safe point, whose lock is held: what is asked for its changes writes them."""
        step, state = self._frozen_place().step, self.safe_point.state
        return self.store.write(kind, step=step, state=state, changed=self.safe_point.changes())

    def _frozen_place(self) -> StatePosition:
        if self.safe_point.place is None:
            raise RuntimeError("there is no safe point")
        return self.safe_point.place

    def _commit(self, place: StatePosition, checkpoint: Checkpoint) -> None:
        try:
            self.supervisor.checkpointed(checkpoint)
        except SaveFailed:  # its bytes may be gone, or be nowhere but here
            self.store.refer_to_none()
            raise
        self.saved = max(self.saved or place, place)  # one that was salvaged may be committed later

    def _newest_healthy(self) -> tuple[Checkpoint, StateDict] | None:
        errors = []
        for candidate in self.store.candidates:
            try:
                return self.store.restore(candidate)
            except CheckpointCorrupted as error:
                errors.append(error)
                self.supervisor.corrupted(candidate, error)
        if errors:
            raise AllCheckpointsCorrupted(errors)
        return None


def _place_of(job: ResumableJob) -> StatePosition:
    return StatePosition(job.step, not is_evaluating(job))


def _capture(job: ResumableJob, streams: StateDict | None, ranks: Ranks) -> StateDict:
    state = job.state_dict()
    for name in (RANDOM, *split(state)[1]):
        if name in state:
            raise ValueError(f"part {name!r} of the state belongs to the loop")
    return state | {RANDOM: streams or reproducibility.state_dict()} | ranks.state_dict(job)


def _take_over(
    job: ResumableJob,
    checkpoint: Checkpoint,
    state: StateDict,
    ranks: Ranks,
    identity: Mapping[str, object],
) -> Receipt:
    """Load the job in every rank, then the random streams: loading may draw numbers."""
    streams = state.pop(RANDOM, {})
    state, of_ranks = split(state)
    parts = [part for part in state if part != "state"]
    ranks.restore(Candidate(checkpoint.path, checkpoint.digest))
    rank_state.hand_over(job, of_ranks)
    job.load_state_dict(state)
    ranks.wait()
    if job.step != checkpoint.step:
        raise IncompatibleState(
            f"the job is at step {job.step}, its checkpoint at {checkpoint.step}"
        )
    restored = reproducibility.load_state_dict(streams)
    if checkpoint.environment.get(NEW_RUN):  # the streams of its GPUs start with the seed
        restored = reproducibility.STREAMS
    own = reproducibility.own_problems(streams.get(reproducibility.OWN, {}))
    inexact = dict(job.inexact) if isinstance(job, Candid) else {}
    notes = job.notes if isinstance(job, Noting) else {}
    return Receipt(
        step=checkpoint.step,
        is_evaluating=not _place_of(job).is_evaluated,
        checkpoint=checkpoint.path.name,
        items=(
            *(ReceiptItem(part, note=notes.get(part, "")) for part in parts if part not in inexact),
            *(ReceiptItem(part, exact=False, note=why) for part, why in inexact.items()),
            *(ReceiptItem(part.replace("rank", "rank ")) for part in of_ranks if not inexact),
            ReceiptItem("data position", note=f"{job.unit} {job.step}, {job.place}"),
            *(
                _stream(name, name in restored, is_used=state != [])
                for name, state in streams.items()
                if name in reproducibility.STREAMS
            ),
            *(
                ReceiptItem(f"random: {name}", not problem, not problem, problem)
                for name, problem in own.items()
            ),
            *compare_environments(
                checkpoint.environment,
                reproducibility.environment(),
                is_same_when_plain=isinstance(job, SameWhenPlain) and job.is_same_when_plain,
            ),
            *provenance.compare(checkpoint.environment),
            *provenance.compare_inputs(checkpoint.identity, identity),
        ),
    )


def _require_exact(receipt: Receipt) -> None:
    problems = [f"{item.part}: {item.note}" for item in receipt.items if not item.exact]
    if problems:
        raise NotExact(f"a resume from step {receipt.step} is not exact; {'; '.join(problems)}")


def _require_deterministic() -> None:
    if varies(reproducibility.environment()):
        problem = "got exact: required with deterministic: false on a GPU"
        raise NotExact(f"{problem}; allowed: deterministic: true")


def _require_certain(found: Mapping[str, str]) -> None:
    if found:
        problems = "; ".join(f"{part}: {why}" for part, why in found.items())
        raise NotExact(f"got exact: required for a run whose resumes may not be exact; {problems}")


def _stream(name: str, is_restored: bool, *, is_used: bool) -> ReceiptItem:
    label = {"torch": "torch cpu"}.get(name, name)
    note = "the number of devices differs" if not is_restored else "" if is_used else "not used"
    return ReceiptItem(f"random: {label}", is_restored, is_restored, note)
