import math
import random

import numpy as np
import pytest
import torch

from tests.engines.contract import MachineDied, ScriptedSupervisor, make_dirty
from tests.engines.counting import CountingJob, saved
from trainops.runtime.checkpoint.store import Candidate, CheckpointPolicy, CheckpointStore
from trainops.runtime.errors import (
    AllCheckpointsCorrupted,
    IncompatibleState,
    LeaseLost,
    SaveFailed,
    UnfreezableState,
)
from trainops.runtime.loop import Directive, Failed, Stopped, Succeeded, run


class HealthyDisk(CheckpointStore):
    """Stops working at one type of checkpoint."""

    broken_for = None

    def write(self, kind, **more):
        if kind == self.broken_for:
            raise SaveFailed(more["step"], "no space left")
        return super().write(kind, **more)


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def start(tmp_path):
    def start(job=CountingJob, supervisor=None, every=2, resume=(), broken_for=None, **more):
        store = HealthyDisk(
            tmp_path,
            identity={"attempt": 1},
            candidates=[Candidate(each.path, each.digest) for each in resume],
        )
        store.broken_for = broken_for
        return run(
            job,
            seed=0,
            store=store,
            policy=CheckpointPolicy(every_steps=every),
            supervisor=supervisor or ScriptedSupervisor(),
            **more,
        )

    return start


def test_runs_to_the_end(start):
    supervisor = ScriptedSupervisor()
    assert start(supervisor=supervisor) == Succeeded({"count": 5})
    assert saved(supervisor) == [("periodic", 2), ("periodic", 4), ("final", 5)]
    assert [each.step for each in supervisor.progress] == [0, 1, 2, 3, 4, 5]
    assert supervisor.receipts[0].checkpoint is None


def test_cancel_before_the_first_step_runs_none_but_can_be_resumed(start):
    supervisor = ScriptedSupervisor(at=0, directive=Directive.CANCEL)
    assert start(supervisor=supervisor) == Stopped(Directive.CANCEL)
    assert saved(supervisor) == [("cancellation", 0)]


def test_cancel_and_preemption_save_the_step_they_stopped_at(start):
    for directive, kind in [(Directive.CANCEL, "cancellation"), (Directive.PREEMPT, "shutdown")]:
        supervisor = ScriptedSupervisor(at=3, directive=directive)
        assert start(supervisor=supervisor) == Stopped(directive)
        assert saved(supervisor) == [("periodic", 2), (kind, 3)]


def test_the_step_that_ends_a_run_is_saved_once_although_a_checkpoint_is_due(start):
    stopped, whole = ScriptedSupervisor(at=3), ScriptedSupervisor()
    start(supervisor=stopped, every=1)
    assert saved(stopped) == [("periodic", 1), ("periodic", 2), ("shutdown", 3)]
    start(supervisor=whole, every=1)
    assert saved(whole) == [*(("periodic", step) for step in range(1, 5)), ("final", 5)]


def test_a_job_is_made_with_random_streams_that_begin_at_the_seed(start):
    class Drawing(CountingJob):
        def __init__(self):
            super().__init__()
            self.drawn = [random.random(), float(np.random.random()), float(torch.rand(()))]  # noqa: NPY002, S311

        def result(self):
            return {"drawn": self.drawn}

    make_dirty()
    outcome = start(Drawing)
    random.seed(0), np.random.seed(0), torch.manual_seed(0)  # noqa: NPY002
    assert outcome == Succeeded({"drawn": Drawing().drawn})


def test_a_cancel_right_after_a_resume_saves_nothing_twice(start):
    first = ScriptedSupervisor(at=3)
    start(supervisor=first)
    second = ScriptedSupervisor(at=3, directive=Directive.CANCEL)
    assert start(supervisor=second, resume=first.checkpoints[::-1]) == Stopped(Directive.CANCEL)
    assert saved(second) == []


def test_the_policy_counts_from_where_the_attempt_began(start):
    first = ScriptedSupervisor(at=1)
    start(supervisor=first)
    second = ScriptedSupervisor()
    start(supervisor=second, resume=first.checkpoints)
    assert saved(second) == [("periodic", 3), ("final", 5)]


def test_a_job_error_is_an_outcome_and_the_last_safe_point_is_saved(start):
    supervisor = ScriptedSupervisor()
    outcome = start(lambda: CountingJob(fail_at=4), supervisor, every=2, safe_point_share=1.0)
    assert isinstance(outcome, Failed) and str(outcome.error) == "boom"
    assert saved(supervisor) == [("periodic", 2), ("failure", 3)]
    heir = ScriptedSupervisor()
    assert start(supervisor=heir, resume=supervisor.checkpoints[::-1]) == Succeeded({"count": 5})
    assert heir.progress[0].step == 3


def test_a_half_done_step_is_in_no_failure_checkpoint(start):
    """The step that fails has already touched the live weights."""
    supervisor = ScriptedSupervisor()
    start(lambda: CountingJob(fail_at=4), supervisor, every=None, safe_point_share=1.0)
    (failure,) = supervisor.checkpoints
    state = CheckpointStore(failure.path.parent, identity={}).load(
        Candidate(failure.path, failure.digest)
    )
    assert state["model"].tolist() == [3.0, 3.0, 3.0]


def test_a_safe_point_that_is_no_newer_or_not_finite_is_not_saved(start):
    for_nothing = ScriptedSupervisor()
    start(lambda: CountingJob(fail_at=3), for_nothing, every=2, safe_point_share=1.0)
    assert saved(for_nothing) == [("periodic", 2)]

    class Exploding(CountingJob):
        def advance(self):
            if self.step == 2:
                self.weights += math.nan
            return super().advance()

    supervisor = ScriptedSupervisor()
    start(lambda: Exploding(fail_at=4), supervisor, every=None, safe_point_share=1.0)
    assert saved(supervisor) == []


def test_a_failure_in_the_first_step_leaves_nothing_to_save(start):
    supervisor = ScriptedSupervisor()
    assert isinstance(start(lambda: CountingJob(fail_at=1), supervisor), Failed)
    assert saved(supervisor) == []


def test_freezing_costs_only_its_share_of_the_time(start):
    clock, taken = Clock(), []

    class Slow(CountingJob):
        def advance(self):
            clock.seconds += 1.0
            return super().advance()

        def state_dict(self):
            clock.seconds += 0.1
            taken.append(self.step)
            return super().state_dict()

    start(lambda: Slow(total_steps=100), every=None, clock=clock, safe_point_share=0.02)
    assert taken == [*range(1, 97, 5), 100]  # the last one is for the final checkpoint


def test_no_safe_points_where_none_are_wanted(start):
    supervisor = ScriptedSupervisor()
    start(lambda: CountingJob(fail_at=4), supervisor, every=None, safe_point_share=0.0)
    assert saved(supervisor) == []


def test_errors_of_the_job_anywhere_are_outcomes(start):
    class Unreportable(CountingJob):
        def result(self):
            raise KeyError("result")

    class Unfreezable(CountingJob):
        def state_dict(self):
            return {"state": {}, "model": object()}

    class Unwritable(CountingJob):
        def state_dict(self):
            return {"state": {"pair": (1, 2)}}

    class Unrestorable(CountingJob):
        def load_state_dict(self, state):
            raise IncompatibleState("of another job")

    class Elsewhere(CountingJob):
        def load_state_dict(self, state):
            self.step = 1

    first = ScriptedSupervisor(at=3)
    start(supervisor=first)
    resume = first.checkpoints[::-1]
    for job, error in [
        (lambda: 1 / 0, ZeroDivisionError),
        (Unreportable, KeyError),
        (Unfreezable, UnfreezableState),
        (Unwritable, UnfreezableState),
    ]:
        outcome = start(job)
        assert isinstance(outcome, Failed) and isinstance(outcome.error, error)
    for job in (Unrestorable, Elsewhere):
        outcome = start(job, resume=resume)
        assert isinstance(outcome, Failed) and isinstance(outcome.error, IncompatibleState)


def test_a_run_continues_without_a_checkpoint_that_cannot_be_written(start):
    supervisor = ScriptedSupervisor()
    assert start(supervisor=supervisor, broken_for="periodic") == Succeeded({"count": 5})
    assert [error.step for error in supervisor.failed_saves] == [2, 4]
    assert saved(supervisor) == [("final", 5)]


def test_a_cancel_ends_also_when_the_disk_is_full(start):
    supervisor = ScriptedSupervisor(at=3, directive=Directive.CANCEL)
    assert start(supervisor=supervisor, broken_for="cancellation") == Stopped(Directive.CANCEL)
    assert saved(supervisor) == [("periodic", 2)]
    assert len(supervisor.failed_saves) == 1


def test_success_without_a_final_checkpoint_is_none(start):
    with pytest.raises(SaveFailed):
        start(broken_for="final")


def test_machinery_errors_are_raised(start):
    class Superseded(ScriptedSupervisor):
        def checkpointed(self, checkpoint):
            raise LeaseLost

    with pytest.raises(LeaseLost):
        start(supervisor=Superseded())
    with pytest.raises(MachineDied):
        start(supervisor=ScriptedSupervisor(at=2, dies=True))


def test_a_bad_checkpoint_is_said_out_loud_and_the_older_one_is_taken(start):
    first = ScriptedSupervisor(at=5 - 1)
    start(supervisor=first, every=2)
    newest = first.checkpoints[-1]
    (newest.path / "model.pt").write_bytes(b"nonsense")
    heir = ScriptedSupervisor()
    start(supervisor=heir, resume=first.checkpoints[::-1])
    ((candidate, error),) = heir.bad
    assert candidate.path == newest.path and error.altered == ["model.pt"]
    assert heir.receipts[0].step == 2


def test_starting_over_is_not_an_answer_to_damage(start):
    first = ScriptedSupervisor(at=3)
    start(supervisor=first)
    for each in first.checkpoints:
        (each.path / "state.json").unlink()
    heir = ScriptedSupervisor()
    with pytest.raises(AllCheckpointsCorrupted):
        start(supervisor=heir, resume=first.checkpoints[::-1])
    assert len(heir.bad) == len(first.checkpoints)
    assert heir.progress == []


def test_a_job_with_its_own_pace_is_saved_at_it(start):
    class ByEpochs(CountingJob):
        checkpoint_steps = 3

    for every, expected in [(None, [3, 5]), (2, [2, 4, 5]), (4, [3, 5])]:
        supervisor = ScriptedSupervisor()
        start(ByEpochs, supervisor, every=every)
        assert [each.step for each in supervisor.checkpoints] == expected


def test_another_number_of_threads_is_on_the_receipt(start):
    first, second = ScriptedSupervisor(at=3), ScriptedSupervisor()
    start(supervisor=first)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        start(supervisor=second, resume=first.checkpoints[::-1])
    finally:
        torch.set_num_threads(threads)
    (receipt,) = second.receipts
    assert not receipt.exact
    (inexact,) = [item for item in receipt.items if not item.exact]
    assert (inexact.part, inexact.note) == ("threads", f"was {threads}, is {threads + 1}")


class Judged(CountingJob):
    """Judges every step in three parts, and draws from the global stream for it."""

    in_parts = is_evaluating = False
    num_parts = 0

    def advance(self):
        if not self.is_evaluating:
            self.weights += torch.rand(3)
            self.step += 1
            self.is_evaluating, self.num_parts = True, 0
            if self.in_parts:
                return {}
        self.num_parts += 1
        drawn = torch.rand(1).item()
        if self.in_parts and self.num_parts < 3:
            return {}
        self.is_evaluating = False
        return {"drawn": drawn}

    def state_dict(self):
        state = super().state_dict()
        return {**state, "state": {**state["state"], "is_evaluating": self.is_evaluating}}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.is_evaluating, self.num_parts = state["state"]["is_evaluating"], 0


@pytest.mark.parametrize("parts", [0, 1, 2])
@pytest.mark.parametrize("at", [2, 5])
def test_an_evaluation_that_draws_is_repeated_with_the_same_numbers(tmp_path, at, parts):
    def go(name, supervisor, candidates=()):
        store = CheckpointStore(tmp_path / name, identity={}, candidates=candidates)
        job = Judged()
        policy = CheckpointPolicy()
        outcome = run(lambda: job, seed=1, store=store, policy=policy, supervisor=supervisor)
        return job, outcome, supervisor

    whole, outcome, watched = go("whole", ScriptedSupervisor())
    assert isinstance(outcome, Succeeded) and len(watched.curve) == 5
    _, outcome, first = go("stopped", ScriptedSupervisor(at=at, parts=parts))
    assert outcome == Stopped(Directive.PREEMPT)
    kept = first.checkpoints[-1]
    assert (str(kept.type), kept.step) == ("shutdown", at)
    resumed, outcome, second = go(
        "stopped", ScriptedSupervisor(), [Candidate(kept.path, kept.digest)]
    )
    assert isinstance(outcome, Succeeded)
    assert second.receipts[0].measured_to == at - 1
    assert torch.equal(resumed.weights, whole.weights)
    assert first.curve | second.curve == watched.curve
