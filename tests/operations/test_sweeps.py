import pytest

from apps.checkpoints.models import Checkpoint
from apps.operations.errors import NotAllowed
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt
from apps.operations.requests import changed_code, services
from apps.operations.scheduling import claims, sweeps
from tests.api.saved import CHANGED, saved
from tests.operations import rows
from trainops.clock import seconds_from_now
from trainops.serving import Serving

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def sent(monkeypatch):
    messages = []
    monkeypatch.setattr(sweeps, "dispatch", lambda *arguments: messages.append(arguments))
    return messages


def test_a_silent_worker_loses_its_operation_with_the_message_that_people_know():
    operation = rows.claimed()
    rows.forget_lease(operation)

    assert sweeps.recover_lost(actor="beat") == 1

    operation.refresh_from_db()
    assert (operation.state, operation.reason) == (State.RESUMING, Reason.WORKER_LOST)
    assert operation.events.first().note == "Operation was RUNNING but no worker claimed it"
    assert Attempt.objects.get().outcome == Attempt.Outcome.LOST


def test_changed_code_keeps_no_lost_operation_from_its_restart():
    operation = rows.claimed()
    saved(operation, environment=CHANGED)
    rows.forget_lease(operation)
    assert sweeps.recover_lost(actor="beat") == 1
    operation.refresh_from_db()
    assert operation.state == State.RESUMING
    with pytest.raises(
        NotAllowed, match="differ from those of the checkpoint: "
    ):  # a person is asked
        changed_code.require_same(operation, Checkpoint.objects.get())


def test_a_second_sweep_finds_nothing_more():
    rows.forget_lease(rows.claimed())
    assert (sweeps.recover_lost(actor="beat"), sweeps.recover_lost(actor="worker-2")) == (1, 0)


def test_a_renewal_that_comes_first_wins(monkeypatch):
    operation = rows.claimed()
    rows.forget_lease(operation)
    decide = claims.restart_or_fail

    def renewed_meanwhile(*arguments, **named):
        claims.renew("worker-1", [(operation.pk, 1)])
        return decide(*arguments, **named)

    monkeypatch.setattr(claims, "restart_or_fail", renewed_meanwhile)
    assert sweeps.recover_lost(actor="beat") == 0
    assert services.get(operation.pk).state == State.RUNNING


def test_under_the_policy_never_it_fails_and_stays_resumable():
    operation = rows.claimed(restart={"policy": "never"})
    rows.forget_lease(operation)
    sweeps.recover_lost(actor="beat")
    operation.refresh_from_db()
    assert (operation.state, operation.reason) == (State.FAILED, Reason.WORKER_LOST)


def test_finished_operations_are_never_touched():
    for state in (State.COMPLETED, State.CANCELLED, State.FAILED):
        rows.in_state(state).row.update(lease_expires_at=seconds_from_now(-99))
    assert sweeps.recover_lost(actor="beat") == 0


def test_leases_are_judged_only_after_a_lease_of_seeing_the_database():
    moment = 1000.0
    watch = sweeps.DatabaseContact(clock=lambda: moment)
    assert not watch.may_judge()
    watch.saw_the_database()
    for _ in range(6):
        assert not watch.may_judge()
        moment += 10
        watch.saw_the_database()
    assert watch.may_judge()
    moment += 300  # the database was away
    assert not watch.may_judge()  # whoever asks first
    watch.saw_the_database()
    assert not watch.may_judge()


def test_a_lost_message_is_sent_again_at_growing_intervals(sent):
    operation = rows.submitted()
    assert sweeps.send_hints() == 0  # the first message may still be on its way
    operation.row.update(queued_at=seconds_from_now(-6))
    assert (sweeps.send_hints(), sweeps.send_hints()) == (1, 0)
    operation.row.update(hinted_at=seconds_from_now(-16))
    assert (sweeps.send_hints(), sweeps.send_hints()) == (1, 0)
    assert sent == [(operation.pk, "training", "")] * 2


def test_no_message_is_sent_for_what_only_others_take(sent, settings):
    """The messages of a label that no worker has would pile up at the broker."""
    operation = rows.submitted(queue="a100")
    operation.row.update(queued_at=seconds_from_now(-6))
    assert sweeps.send_hints() == 0
    settings.SERVING = Serving(kinds=("training",), labels=("a100",), slots=1)
    assert sweeps.send_hints() == 1
    assert sent == [(operation.pk, "training", "a100")]


def test_a_restart_that_is_not_due_is_not_sent(sent):
    operation = rows.submitted()
    operation.row.update(queued_at=seconds_from_now(-99), not_before=seconds_from_now(60))
    assert sweeps.send_hints() == 0
