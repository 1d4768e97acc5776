import pytest

from apps.operations.lifecycle import Reason
from apps.operations.scheduling.restarts import GiveUp, Restart, after

POLICY = {"policy": "on_worker_loss", "max_restarts": 3}


def decide(reason, used=0, **policy):
    return after(
        reason, restart=POLICY | policy, restarts_used=used, first_delay=5, longest_delay=300
    )


@pytest.mark.parametrize(("used", "seconds"), [(0, 5), (1, 10), (2, 20)])
def test_the_pause_doubles_with_jitter(used, seconds):
    delays = {decide(Reason.PROCESS_KILLED, used).delay_seconds for _ in range(50)}
    assert len(delays) > 1
    assert all(0.8 * seconds <= delay <= 1.2 * seconds for delay in delays)


def test_the_pause_has_a_longest():
    assert decide(Reason.WORKER_LOST, 9).delay_seconds <= 300 * 1.2


def test_it_gives_up_after_n_crashes_without_progress():
    assert isinstance(decide(Reason.PROCESS_KILLED, 2), Restart)
    assert isinstance(decide(Reason.PROCESS_KILLED, 3), GiveUp)


def test_the_platform_has_more_patience_with_itself():
    assert isinstance(decide(Reason.WORKER_LOST, 9), Restart)
    assert isinstance(decide(Reason.WORKER_LOST, 10), GiveUp)


def test_what_ran_out_of_memory_is_tried_once_more():
    assert isinstance(decide(Reason.OUT_OF_MEMORY, 0), Restart)
    assert isinstance(decide(Reason.OUT_OF_MEMORY, 1), GiveUp)


@pytest.mark.parametrize("reason", [Reason.JOB_ERROR, Reason.NON_FINITE_LOSS])
def test_an_error_in_the_job_is_repeated_only_when_asked_for(reason):
    assert isinstance(decide(reason), GiveUp)
    assert isinstance(decide(reason, policy="on_failure"), Restart)


@pytest.mark.parametrize("policy", ["never", "on_worker_loss", "on_failure"])
def test_a_shutdown_costs_nothing(policy):
    assert decide(Reason.SHUTDOWN, used=99, policy=policy) == Restart(0.0)


@pytest.mark.parametrize(
    "reason", [Reason.INPUT_ERROR, Reason.CHECKPOINT_CORRUPTED, Reason.TIME_LIMIT]
)
def test_what_a_restart_cannot_mend_is_not_restarted(reason):
    assert isinstance(decide(reason, policy="on_failure"), GiveUp)
