"""Checkpoints are written beside the loop: one at a time, as the state was, and never unheard."""

import threading
from dataclasses import dataclass, field

import pytest
import torch

from tests.engines.contract import MachineDied, ScriptedSupervisor, let_savings_land
from tests.engines.counting import CountingJob, saved
from tests.waiting import wait_until
from trainops.runtime.checkpoint import snapshot
from trainops.runtime.checkpoint.store import (
    Candidate,
    CheckpointPolicy,
    CheckpointStore,
    CheckpointType,
)
from trainops.runtime.checkpointer import Saving
from trainops.runtime.errors import LeaseLost, SaveFailed, UnfreezableState
from trainops.runtime.loop import Directive, Failed, Stopped, Succeeded, run


class GatedStore(CheckpointStore):
    """Writes a periodic checkpoint only once its gate is open; raises `error` there, if set."""

    def __init__(self, root):
        super().__init__(root, identity={})
        self.gate = threading.Event()
        self.error = None
        self.num_writing = 0
        self.buffers = set()

    def write(self, kind, **more):
        assert self.num_writing == 0, "two checkpoints are in flight"
        self.num_writing += 1
        self.buffers.add(more["state"]["model"].data_ptr())
        try:
            if kind is CheckpointType.PERIODIC:
                assert self.gate.wait(30)
                if self.error is not None:
                    error, self.error = self.error, None
                    raise error
            return super().write(kind, **more)
        finally:
            self.num_writing -= 1


@dataclass
class Gatekeeper(ScriptedSupervisor):
    """Opens the store's gate at a step, and lets what was waiting there land."""

    store: GatedStore | None = None
    opens_at: int = 0
    was_open: list[bool] = field(default_factory=list)  # at each step that was reported

    def __post_init__(self):
        self.is_patient = False

    def report(self, progress):
        self.was_open.append(self.store.gate.is_set())
        directive = super().report(progress)
        if progress.step == self.opens_at:
            self.store.gate.set()
            if directive is Directive.PROCEED:
                let_savings_land()
        return directive


@pytest.fixture
def store(tmp_path):
    return GatedStore(tmp_path)


def start(store, supervisor, job=CountingJob, every=2, share=1.0):
    return run(
        job,
        seed=0,
        store=store,
        policy=CheckpointPolicy(every_steps=every),
        supervisor=supervisor,
        safe_point_share=share,
    )


def weights(checkpoint):
    store = CheckpointStore(checkpoint.path.parent, identity={})
    return store.load(Candidate(checkpoint.path, checkpoint.digest))["model"].tolist()


def test_the_loop_continues_while_a_checkpoint_is_written(store):
    supervisor = Gatekeeper(store=store, opens_at=4)
    assert start(store, supervisor) == Succeeded({"count": 5})
    assert supervisor.was_open == [False] * 5 + [True]
    assert weights(supervisor.checkpoints[0]) == [2.0] * 3  # the job has been at 4 meanwhile


def test_an_alias_in_the_place_of_the_copy_would_be_noticed(store, monkeypatch):
    alias = lambda copying, tensor, into: tensor.detach()  # noqa: E731
    monkeypatch.setattr(snapshot._Copying, "_copy_tensor", alias)
    supervisor = Gatekeeper(store=store, opens_at=4)
    start(store, supervisor)
    assert weights(supervisor.checkpoints[0]) != [2.0] * 3


def test_a_due_checkpoint_waits_for_the_one_in_flight_without_a_second_buffer(store):
    supervisor = Gatekeeper(store=store, opens_at=5)
    start(store, supervisor, lambda: CountingJob(total_steps=9))
    let_savings_land()
    steps = [checkpoint.step for checkpoint in supervisor.checkpoints]
    assert steps[:2] == [2, 5] and steps[-1] == 9  # the one of step 4 was taken at 5
    assert [weights(each)[0] for each in supervisor.checkpoints] == steps
    assert len(store.buffers) == 1


@pytest.mark.parametrize("directive", [Directive.CANCEL, Directive.PREEMPT])
def test_a_stop_waits_for_the_checkpoint_in_flight_and_then_saves_its_own(store, directive):
    supervisor = Gatekeeper(store=store, opens_at=99, at=3, directive=directive)
    opener = threading.Timer(0.1, store.gate.set)
    opener.start()
    assert start(store, supervisor) == Stopped(directive)
    assert [checkpoint.step for checkpoint in supervisor.checkpoints] == [2, 3]
    opener.join()


@pytest.mark.parametrize("directive", [Directive.CANCEL, Directive.PREEMPT])
def test_a_stop_stages_its_own_although_the_one_before_is_not_committed(store, directive):
    """The database may be away for longer than the lease: what is staged is adopted later."""
    database = threading.Event()
    staged = []

    class Unanswered(Gatekeeper):
        def checkpointed(self, checkpoint):
            staged.append(checkpoint.step)
            if len(staged) == 2:
                database.set()
            assert database.wait(30)
            super().checkpointed(checkpoint)

    store.gate.set()
    supervisor = Unanswered(store=store, opens_at=99, at=3, directive=directive)
    assert start(store, supervisor) == Stopped(directive)
    assert staged == [2, 3] == sorted(each.step for each in supervisor.checkpoints)


def test_a_failure_beside_a_checkpoint_in_flight_keeps_that_one(store):
    supervisor = Gatekeeper(store=store, opens_at=99)
    threading.Timer(0.1, store.gate.set).start()
    outcome = start(store, supervisor, lambda: CountingJob(fail_at=4))
    assert isinstance(outcome, Failed) and str(outcome.error) == "boom"
    assert saved(supervisor) == [("periodic", 2)]
    assert weights(supervisor.checkpoints[0]) == [2.0] * 3


def test_a_failure_saves_from_the_same_copy_what_could_not_be_saved_beside(store):
    store.error = SaveFailed(2, "no space left")
    supervisor = Gatekeeper(store=store, opens_at=99)
    threading.Timer(0.1, store.gate.set).start()
    assert isinstance(start(store, supervisor, lambda: CountingJob(fail_at=4)), Failed)
    assert [error.step for error in supervisor.failed_saves] == [2]
    assert saved(supervisor) == [("failure", 2)]
    assert weights(supervisor.checkpoints[0]) == [2.0] * 3


def test_a_save_that_fails_beside_the_loop_is_reported_and_tried_again_when_next_due(store):
    store.error = SaveFailed(2, "no space left")
    supervisor = Gatekeeper(store=store, opens_at=3)
    assert start(store, supervisor, lambda: CountingJob(total_steps=6)) == Succeeded({"count": 6})
    assert [error.step for error in supervisor.failed_saves] == [2]
    assert saved(supervisor) == [("periodic", 4), ("final", 6)]


def test_after_a_commit_that_failed_the_next_one_is_whole(store):
    """What a bucket did not take must not be referred to; what it took may be."""

    class Refusing(Gatekeeper):
        def checkpointed(self, checkpoint):
            super().checkpointed(checkpoint)
            if checkpoint.step == 4:
                raise SaveFailed(4, "the bucket is full")

    supervisor = Refusing(store=store)
    supervisor.is_patient = True
    store.gate.set()
    start(store, supervisor, lambda: CountingJob(total_steps=8))
    homes = {
        each.step: {file.home for file in each.artifacts if file.name == "random.pt"}
        for each in supervisor.checkpoints
    }
    first, third = (supervisor.checkpoints[number].path.name for number in (0, 2))
    assert homes == {2: {""}, 4: {first}, 6: {""}, 8: {third}}


def test_a_lost_lease_beside_the_loop_ends_the_run_before_the_next_step(store):
    class Superseded(Gatekeeper):
        def checkpointed(self, checkpoint):
            raise LeaseLost

    supervisor = Superseded(store=store, opens_at=3)
    with pytest.raises(LeaseLost):
        start(store, supervisor, lambda: CountingJob(total_steps=1000))
    assert supervisor.progress[-1].step == 3


def test_a_job_whose_state_cannot_be_written_fails_although_it_went_on(store):
    class Unwritable(CountingJob):
        def state_dict(self):
            return {"state": {"pair": (1, 2)}, "model": self.weights}

    supervisor = Gatekeeper(store=store, opens_at=3)
    outcome = start(store, supervisor, lambda: Unwritable(total_steps=1000))
    assert isinstance(outcome, Failed) and isinstance(outcome.error, UnfreezableState)
    assert supervisor.progress[-1].step == 3 and saved(supervisor) == []


def test_a_bug_beside_the_loop_is_raised_in_it(store):
    store.error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        start(store, Gatekeeper(store=store, opens_at=3), lambda: CountingJob(total_steps=1000))


def test_no_error_hides_another(store):
    """Here the machinery breaks while a checkpoint is in flight, which fails as well."""
    store.error = LeaseLost()
    store.gate.set()
    supervisor = Gatekeeper(store=store, opens_at=99, at=3, dies=True)
    with pytest.raises(LeaseLost) as caught:
        start(store, supervisor)
    assert isinstance(caught.value.__context__, MachineDied)


def test_nothing_runs_on_after_a_run_has_ended(store):
    store.gate.set()
    with pytest.raises(MachineDied):
        start(store, ScriptedSupervisor(at=3, dies=True, is_patient=False), every=1)
    assert not any(isinstance(thread, Saving) for thread in threading.enumerate())


def test_the_safe_point_stays_as_it_is_while_it_is_written(store):
    """With safe points at every step, which would all go into the same memory."""
    taken = []

    class Watched(CountingJob):
        def state_dict(self):
            taken.append(self.step)
            return super().state_dict()

    start(store, Gatekeeper(store=store, opens_at=5), lambda: Watched(total_steps=7), every=2)
    assert taken[:2] == [1, 2] and not {3, 4} & set(taken) and 5 in taken


def test_a_save_beside_the_loop_says_what_decides_the_last_bits(store):
    """The number of threads is each thread's own in OpenMP; that of the job is what counts."""
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        store.gate.set()
        supervisor = ScriptedSupervisor()
        start(store, supervisor)
    finally:
        torch.set_num_threads(before)
    assert {each.environment["threads"] for each in supervisor.checkpoints} == {before + 1}


@pytest.mark.slow
def test_what_is_salvaged_is_not_overwritten_meanwhile(store):
    """The loop, which hung, comes to itself just now and freezes a later step."""
    job, begun = CountingJob(total_steps=99), []
    supervisor = ScriptedSupervisor(at=3)
    outcome = run(
        lambda: job, seed=0, store=store, policy=CheckpointPolicy(), supervisor=supervisor,
        safe_point_share=0.0, begun=begun.append,
    )  # fmt: skip
    assert outcome == Stopped(Directive.PREEMPT)
    attempt = begun[0]
    job.advance()
    attempt.freeze(job)
    salvage = threading.Thread(target=attempt.salvage, args=[CheckpointType.PERIODIC])  # gated
    salvage.start()
    wait_until(lambda: store.num_writing)
    job.advance()
    freezing = threading.Thread(target=attempt.freeze, args=[job])
    freezing.start()
    freezing.join(0.3)
    store.gate.set()
    salvage.join()
    freezing.join()
    assert saved(supervisor) == [("shutdown", 3), ("periodic", 4)]
    assert weights(supervisor.checkpoints[-1]) == [4.0] * 3
    attempt.salvage(CheckpointType.FAILURE)
    assert saved(supervisor)[2:] == [("failure", 5)]
    attempt.salvage(CheckpointType.FAILURE)  # nothing is newer than that
    assert len(supervisor.checkpoints) == 3


def stopped(store, supervisor, at=3):
    """Return the attempt of a run that stopped and saved at step `at`, and its job."""
    begun, job = [], CountingJob(total_steps=99)
    run(
        lambda: job, seed=0, store=store, policy=CheckpointPolicy(), supervisor=supervisor,
        safe_point_share=0.0, begun=begun.append,
    )  # fmt: skip
    return begun[0], job


def test_a_stop_during_a_salvage_saves_its_own_state_and_the_newer_place_counts(store):
    """The salvage holds the safe point's lock; its commit comes after that of the stop."""

    class CommitsLate(ScriptedSupervisor):
        def checkpointed(self, checkpoint):
            if checkpoint.step == 4:
                assert newer_is_there.wait(30)
            super().checkpointed(checkpoint)
            if checkpoint.step == 5:
                newer_is_there.set()

    newer_is_there = threading.Event()
    supervisor = CommitsLate(at=3)
    attempt, job = stopped(store, supervisor)
    job.advance()
    attempt.freeze(job)
    salvage = threading.Thread(target=attempt.salvage, args=[CheckpointType.PERIODIC])  # gated
    salvage.start()
    wait_until(lambda: store.num_writing)
    job.advance()
    stop = threading.Thread(target=attempt.save, args=[job, CheckpointType.SHUTDOWN])
    stop.start()
    store.gate.set()
    stop.join()
    salvage.join()
    assert saved(supervisor) == [("shutdown", 3), ("shutdown", 5), ("periodic", 4)]
    assert [weights(each)[0] for each in supervisor.checkpoints] == [3.0, 5.0, 4.0]
    assert attempt.saved == snapshot.StatePosition(5)


def test_a_salvage_does_not_wait_for_the_commit_of_an_older_checkpoint(store):
    """The database is away: nothing answers, and what is staged is adopted by the next owner."""
    database, staged = threading.Event(), []

    class Unanswered(ScriptedSupervisor):
        def checkpointed(self, checkpoint):
            staged.append(checkpoint.step)
            assert checkpoint.step == 3 or database.wait(30)
            super().checkpointed(checkpoint)

    store.gate.set()
    attempt, job = stopped(store, Unanswered(at=3))
    job.advance()
    attempt.start_saving(job, CheckpointType.PERIODIC)
    wait_until(lambda: staged == [3, 4])
    job.advance()
    attempt.freeze(job)
    salvage = threading.Thread(target=attempt.salvage, args=[CheckpointType.SHUTDOWN])
    salvage.start()
    wait_until(lambda: staged[2:] == [5])
    database.set()
    salvage.join()
    attempt.settle()
    assert attempt.saved == snapshot.StatePosition(5)


def test_what_is_not_finite_is_not_salvaged(store):
    begun, supervisor = [], ScriptedSupervisor(at=3)
    job = CountingJob(total_steps=99)
    run(
        lambda: job, seed=0, store=store, policy=CheckpointPolicy(), supervisor=supervisor,
        safe_point_share=0.0, begun=begun.append,
    )  # fmt: skip
    job.weights *= float("nan")
    job.advance()
    begun[0].freeze(job)
    begun[0].salvage(CheckpointType.FAILURE)
    assert saved(supervisor) == [("shutdown", 3)]
