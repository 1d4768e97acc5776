"""A distributed round: clients that are operations of their own, found, dropped, and let go."""

import os
import signal
import threading
from collections import Counter
from datetime import timedelta
from itertools import product

import pytest
from django.db import connection
from django.utils import timezone

from apps.checkpoints import copies, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.trying import StorageFailed
from apps.ledger.models import LedgerEntry
from apps.operations import outbox
from apps.operations.api.rows import ROW_FIELDS, described_all, rows_of
from apps.operations.attempts import work
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.errors import NotAllowed
from apps.operations.filters import narrowed
from apps.operations.models import Attempt, Operation, Subtask
from apps.operations.placement import ServingWorker
from apps.operations.requests import deletion, forking, services
from apps.operations.scheduling import claims, queue_status
from apps.operations.subtasks import manager
from apps.operations.subtasks import services as subtasks
from tests.operations.attempts import Running, run
from tests.operations.distributed import (
    FIRST,
    PRIVACY,
    Round,
    curve,
    final,
    ledger,
    result,
    run_distributed,
    submit,
)
from tests.operations.releases import append, spent_by
from tests.operations.test_privacy import entry
from tests.thinning import some_of
from tests.waiting import wait_until
from trainops.kinds.federated.account import Account

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.database,
    pytest.mark.postgres,
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"


def require_same(done, whole):
    assert done.state == "COMPLETED", done.error
    assert final(done) == final(whole) and curve(done) == curve(whole)
    assert result(done) == result(whole) and ledger(done) == ledger(whole)


@pytest.mark.parametrize(
    ("strategy", "mode"), some_of([*product(["fedavg", "fedyogi"], PRIVACY)], every=3)
)
def test_clients_elsewhere_come_to_the_same_bits(runtime, mode, strategy):
    server = {"strategy": strategy}
    whole = run(runtime, submit(mode=mode, server=server, placement="in_process"))
    assert whole.state == "COMPLETED", whole.error
    done = run_distributed(runtime, submit(mode=mode, server=server))
    require_same(done, whole)
    assert Attempt.objects.exclude(operation__in=[whole.pk, done.pk]).count() == 0
    assert not Subtask.objects.exists(), "nothing of its clients is left"
    assert set(Checkpoint.objects.values_list("operation_id", flat=True)) == {whole.pk, done.pk}


@pytest.fixture
def gone(monkeypatch):
    """What was let go: round, client, state, and the epochs that its attempts trained."""
    gone, delete = [], subtasks.delete

    def noted(parent, deleted):
        for each in deleted.select_related("operation"):
            attempts = Attempt.objects.filter(operation=each.operation)
            epochs = sum(attempt.to_step - attempt.from_step for attempt in attempts)
            gone.append((each.group, each.index, each.operation.state, epochs))
        return delete(parent, deleted)

    monkeypatch.setattr(subtasks, "delete", noted)
    return gone


EACH_ONCE = [(r, c, "COMPLETED", 2) for r in (1, 2) for c in range(3)]


@pytest.mark.parametrize("mode", some_of([*PRIVACY], every=2))
def test_a_killed_server_takes_what_is_done_and_trains_nothing_again(runtime, mode, gone):
    whole = run(runtime, submit(mode=mode, placement="in_process"))
    going = Round(runtime, submit(mode=mode))
    going.sent(3)
    assert going.last_first() and going.last_first()
    os.kill(going.server.pid, signal.SIGKILL)
    assert going.server.ended().state == "RESUMING"
    assert [each.state for each in going.sent(3)] == ["PENDING", "COMPLETED", "COMPLETED"]
    assert going.last_first(), "clients go on while their server is away"
    going.operation.row.update(not_before=None)
    done = run_distributed(runtime, going.operation)
    assert done.attempt == 2
    require_same(done, whole)
    assert sorted(gone) == EACH_ONCE


def test_a_killed_client_is_sent_again_from_its_checkpoint(runtime, gone, monkeypatch):
    long = {"local_epochs": 30, "rounds": 1}
    whole = run(runtime, submit(mode="sample", placement="in_process", **long))
    going = Round(runtime, submit(mode="sample", **long))
    victim = going.sent(3)[1]
    victim.row.update(priority=FIRST)
    running = Running(runtime, victim)
    wait_until(lambda: services.get(victim.pk).step >= 5)
    os.kill(running.pid, signal.SIGKILL)
    assert running.ended().state == "RESUMING"
    victim.row.update(not_before=None)
    done = going.to_its_end()
    require_same(done, whole)
    assert [epochs for _, _, _, epochs in sorted(gone)][::2] == [30, 30]
    assert Attempt.objects.filter(operation=victim).count() == 0  # it was let go with it


def test_a_cancel_reaches_the_clients_and_a_resume_continues_with_them(runtime, person, gone):
    whole = run(runtime, submit(placement="in_process"))
    going = Round(runtime, submit(person))
    going.sent(3)
    assert going.last_first()
    services.cancel(operation_id=going.operation.pk, actor=person)
    going.server.held.stop = "cancel"
    assert going.server.ended().state == "CANCELLED"
    assert [each.state for each in going.sent(3)] == ["CANCELLED", "CANCELLED", "COMPLETED"]
    assert not Operation.objects.waiting().exists() and not gone
    services.resume(operation_id=going.operation.pk, actor=person)
    require_same(run_distributed(runtime, going.operation), whole)
    assert sorted(gone) == EACH_ONCE


def test_a_delete_takes_the_clients_with_it(runtime, person, tmp_path):
    going = Round(runtime, submit(person))
    going.sent(3)
    going.last_first()
    with pytest.raises(NotAllowed):
        deletion.delete(operation_id=going.operation.pk, actor=person)
    services.kill(operation_id=going.operation.pk, actor=person)
    going.server.held.stop = "kill"
    going.server.ended()
    assert any((tmp_path / "checkpoints").rglob("op_subtask*/*/client.pt"))
    deletion.delete(operation_id=going.operation.pk, actor=person)
    assert not Operation.objects.exists() and not Checkpoint.objects.exists()
    assert not any(each.is_file() for each in (tmp_path / "checkpoints").glob("op_*/**/*"))


def test_a_running_client_is_asked_to_stop_with_its_server(runtime, person):
    for how in ("cancel", "kill"):
        going = Round(runtime, submit(person))
        first, *_ = going.sent(3)
        first.row.update(state="RUNNING", attempt=1, lease_expires_at="2099-01-01T00:00Z")
        getattr(services, how)(operation_id=going.operation.pk, actor=person)
        going.server.held.stop = how
        going.server.ended()
        assert services.get(first.pk).stop_requested == how
        Operation.objects.all().delete()


def test_lists_leave_clients_out_and_say_what_they_wait_for(runtime, person):
    going = Round(runtime, submit(person, labels={"1": "nobody"}))
    going.sent(3)
    queue_status.register(lambda: [ServingWorker("worker-1")])
    try:
        ask = {"part_of": going.operation.pk}
        found = narrowed(rows_of(*ROW_FIELDS), ask, person)
        described = described_all(list(found.order_by("subtask__index")), person)
        listed = narrowed(Operation.objects.all(), {}, person)
    finally:
        queue_status._registered.pop()
    assert [each["part_of"] for each in described] == [going.operation.pk] * 3
    assert [each["allowed_actions"] for each in described] == [[]] * 3
    waits = [each["waiting_for"]["message"] for each in described]
    assert waits[0] == "A worker claims it shortly."
    assert waits[1] == "No worker has the label nobody."
    assert [each.pk for each in listed] == [going.operation.pk]
    going.server.held.stop = "kill"
    going.server.ended()


@pytest.mark.exhaustive
def test_more_servers_than_slots_do_not_wait_for_each_other(runtime):
    servers = [submit(), submit()]
    ids = [each.pk for each in servers]

    def is_over():
        work.work_until_idle(runtime)
        return not Operation.objects.filter(pk__in=ids).active().exists()

    def work_on():
        try:
            wait_until(is_over)
        finally:
            connection.close()

    threads = [threading.Thread(target=work_on) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert runtime.slots.count == 1
    assert [services.get(each).state for each in ids] == ["COMPLETED"] * 2


def test_who_stays_away_is_dropped_and_the_events_say_so(runtime):
    going = Round(runtime, submit(labels={"1": "nobody"}, round_timeout=1.5, min_clients=2))
    done = going.to_its_end()
    assert done.state == "COMPLETED", done.error
    assert done.result["dropped"] == 2 and done.result["final"]["clients"] == 2
    notes = done.events.filter(what="SUBTASK_DROPPED").values_list("note", flat=True)
    assert sorted(notes) == ["client 1 of round 1", "client 1 of round 2"]
    assert not Subtask.objects.exists() and not Operation.objects.waiting().exists()


def test_never_with_fewer_than_min_clients_and_it_says_what_it_waits_for(runtime):
    going = Round(runtime, submit(labels={"1": "nobody"}, round_timeout=0.5, min_clients=3))
    going.sent(3)
    place = "0 of 2 rounds, 2 of 3 clients done; past its time, and waits for at least 3"
    wait_until(lambda: not going.last_first() and place_of(going.operation) == place)
    Subtask.objects.get(index=1).operation.row.update(queue="")
    wait_until(lambda: Subtask.objects.filter(group=2, index=1).exists() or going.last_first())
    wait_until(Subtask.objects.filter(group=2, index=1).exists)
    Subtask.objects.get(index=1).operation.row.update(queue="")
    done = going.to_its_end()
    assert done.state == "COMPLETED" and "dropped" not in done.result


def place_of(operation):
    return services.get(operation.pk).place


def test_what_is_dropped_writes_no_more(runtime):
    going = Round(runtime, submit(mode="sample"))
    part, *_ = going.sent(3)
    claimed = Operation.objects.get(pk=part.pk)
    part.row.update(state="RUNNING", attempt=1, lease_expires_at="2099-01-01T00:00Z")
    claimed.refresh_from_db()
    subtasks.drop(services.get(going.operation.pk), [part.pk])
    account = ReportWriter(claimed, account_id=going.operation.pk)
    with pytest.raises(claims.Fenced):
        account.append([entry(1).to_entry()])
    assert services.get(part.pk).reason == "DROPPED" and not ledger(going.operation)
    done = going.to_its_end()
    assert done.result["dropped"] == 1, "this round's; in the next one it is there again"


def test_a_client_that_fails_fails_its_server_by_name(runtime):
    explode = {"parameters": {"norm": True, "explode_in_batch": 2}}
    going = Round(runtime, submit(**explode))
    done = going.to_its_end()
    assert (done.state, done.reason) == ("FAILED", "JOB_ERROR")
    assert " failed in round 1: NonFiniteLoss" in done.error["message"]
    parts = Operation.objects.filter(subtask__parent=done)
    assert any(each.pk in done.error["message"] for each in parts.filter(state="FAILED"))
    assert not parts.active().exists()


@pytest.mark.exhaustive
def test_no_request_is_made_of_a_client_alone(runtime, person):
    going = Round(runtime, submit(person))
    part, *_ = going.sent(3)
    for wish in (services.cancel, services.kill, services.resume, deletion.delete,
                 deletion.delete_checkpoints, forking.fork):  # fmt: skip
        who = {"owner": person} if wish is forking.fork else {"actor": person}
        with pytest.raises(NotAllowed, match="client 0 of round 1 of op_federated") as refused:
            wish(operation_id=part.pk, **who)
        assert refused.value.code == "PART_OF_ANOTHER"
    assert going.to_its_end().state == "COMPLETED"


@pytest.mark.exhaustive
def test_what_clients_begin_with_stays_until_they_have_ended(runtime):
    checkpoint = {"keep_last": 1, "keep_best": 0}
    going = Round(runtime, submit(clients=4, rounds=1, checkpoint=checkpoint))
    ids = [each.pk for each in going.sent(4)]
    given = Subtask.objects.values_list("given_id", flat=True)[0]
    for pk in ids[:2]:
        Operation.objects.filter(pk=pk).update(priority=FIRST)
        work._work_once(runtime)
    mine = Checkpoint.objects.filter(operation=going.operation).order_by("step")
    wait_until(lambda: list(mine.values_list("step", flat=True)) == [0, 4])
    checkpoints.retain(going.operation.pk, keep_last=1, keep_best=0, better="min")
    kept = list(mine.values_list("pk", flat=True))
    assert given == kept[0] and len(kept) == 2
    assert going.to_its_end().state == "COMPLETED"


def test_the_sweep_settles_what_was_left(runtime):
    going = Round(runtime, submit())
    going.sent(3)
    os.kill(going.server.pid, signal.SIGKILL)
    going.server.ended()
    server = going.operation
    server.row.move("FAILED", actor="test", reason="WORKER_LOST")
    outbox.deliver()
    assert {each.state for each in going.sent(3)} == {"CANCELLED"}
    server.row.update(state="COMPLETED")
    server.record("COMPLETED", actor="test")
    outbox.deliver()
    assert not Subtask.objects.exists() and Operation.objects.count() == 1


def test_an_update_that_is_not_whole_is_trained_again(runtime, gone):
    whole = run(runtime, submit(placement="in_process"))
    going = Round(runtime, submit())
    going.sent(3)
    os.kill(going.server.pid, signal.SIGKILL)
    going.server.ended()
    assert going.last_first()
    found = Checkpoint.objects.get(type="final", operation__subtask__parent=going.operation)
    (storage.directory(found.artifacts_path) / "client.pt").write_bytes(b"something else")
    going.operation.row.update(not_before=None)
    require_same(run_distributed(runtime, going.operation), whole)
    assert len(gone) == 7


@pytest.mark.exhaustive
def test_a_quota_does_not_keep_clients_from_beginning(runtime, person, settings):
    changed = {"checkpoint_quota_bytes": 1}
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=changed)
    done = run_distributed(runtime, submit(person))
    assert done.state == "COMPLETED", done.error
    assert done.events.filter(what="SAVE_FAILED").exists(), "others were refused"
    begun = {"round": Checkpoint.objects.get(operation=done, type="final").state["round"]}
    assert not subtasks.is_awaited(done, begun, 0)
    done.attempt += 1  # it goes on from an older checkpoint, on a branch of its own
    assert subtasks.is_awaited(done, begun, 0)


@pytest.mark.exhaustive
def test_clients_go_where_their_server_was_asked_to(runtime):
    operation = submit(labels={"1": "elsewhere"})
    operation.row.update(queue="here")
    runtime.labels = ["here"]
    going = Round(runtime, services.get(operation.pk))
    assert [each.queue for each in going.sent(3)] == ["here", "elsewhere", "here"]
    runtime.labels = ["here", "elsewhere"]
    assert going.to_its_end().state == "COMPLETED"


@pytest.mark.exhaustive
def test_a_night_without_workers_is_not_the_clients_time(runtime):
    going = Round(runtime, submit(clients=4, rounds=1, round_timeout=600, min_clients=1))
    going.sent(4)
    os.kill(going.server.pid, signal.SIGKILL)
    going.server.ended()
    Subtask.objects.update(sent_at=timezone.now() - timedelta(hours=12))
    going.operation.row.update(not_before=None)
    done = run_distributed(runtime, going.operation)
    assert done.state == "COMPLETED" and "dropped" not in done.result


@pytest.mark.exhaustive
def test_who_was_lost_in_the_night_has_its_time_too(runtime):
    going = Round(runtime, submit(clients=2, rounds=1))
    waits, runs = (each.pk for each in going.sent(2))
    before = timezone.now() - timedelta(hours=12)
    Subtask.objects.update(sent_at=before)
    Operation.objects.filter(pk=runs).update(
        state="RUNNING", attempt=1, lease_expires_at=before + timedelta(minutes=1)
    )
    subtasks._restart_clock(services.get(going.operation.pk), [waits, runs])
    assert subtasks.age_seconds([waits]) < 60 and subtasks.age_seconds([runs]) < 60
    Operation.objects.filter(pk=runs).update(lease_expires_at=timezone.now() + timedelta(hours=1))
    Subtask.objects.update(sent_at=before)
    subtasks._restart_clock(services.get(going.operation.pk), [waits, runs])
    assert subtasks.age_seconds([waits]) < 60 and subtasks.age_seconds([runs]) > 3600
    Operation.objects.filter(pk=runs).update(state="PENDING", attempt=0, lease_expires_at=None)
    assert going.to_its_end().state == "COMPLETED"


@pytest.mark.exhaustive
def test_a_drained_worker_does_not_wait_for_operations_that_it_will_not_claim(runtime):
    going = Round(runtime, submit())
    going.sent(3)
    going.runtime.slots.drain(True)
    left = going.server.ended()
    assert (left.state, left.reason) == ("RESUMING", "SHUTDOWN")
    assert going.runtime.slots.all() == []
    going.runtime.slots.drain(False)
    left.row.update(not_before=None)
    assert run_distributed(runtime, going.operation).state == "COMPLETED"


@pytest.mark.parametrize(("failures", "num_clients"), [(1, 14), (99, 3)])
def test_what_a_client_saved_is_fetched_again_where_the_storage_was_away(
    runtime, monkeypatch, failures, num_clients
):
    """One outage is one failure of each, however many are fetched at once."""
    left, real = Counter(), copies.make_local

    def make_local(path, digest, stop):
        left[path] += 1
        if left[path] <= failures:
            raise StorageFailed("the bucket does not answer")
        return real(path, digest, stop)

    monkeypatch.setattr(manager.copies, "make_local", make_local)
    monkeypatch.setattr(manager, "FETCH_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(manager, "LOOK_SECONDS", 0.01)
    going = Round(runtime, submit(restart={"policy": "never"}, clients=num_clients, rounds=1))
    going.sent(num_clients)
    done = going.to_its_end()
    if failures == 1:
        assert done.state == "COMPLETED", done.error
    else:
        assert (done.state, done.reason) == ("FAILED", "STORAGE_ERROR")
        assert "the result of a subtask: the bucket does not answer" in done.error["message"]


@pytest.mark.exhaustive
def test_what_a_way_that_was_left_spends_until_it_is_let_go_counts(runtime, monkeypatch):
    """A client of a later round, whose epoch ends while its server comes back to an earlier one."""
    whole = run_distributed(runtime, submit(mode="hybrid", rounds=1))
    delta, late = whole.config["privacy"]["delta"], entry(7, round=2, steps=50)
    account = Account(delta)
    account.add([late, *(each for each in spent_by(whole.pk) if each.level == "sample")])
    start = subtasks.start

    def spending(parent, directory, requested):
        append(parent.pk, parent.attempt, [late])  # changes nothing the second time
        return start(parent, directory, requested)

    monkeypatch.setattr(subtasks, "start", spending)
    privacy = {"mode": "hybrid", **PRIVACY["hybrid"], "target_epsilon": account.epsilon * 1.001}
    done = run_distributed(runtime, submit(mode="hybrid", rounds=2, privacy=privacy))
    assert done.result["reason"] == "PRIVACY_BUDGET"
    assert {each.level for each in spent_by(done.pk)} == {"sample"}  # no model was released


@pytest.mark.exhaustive
def test_the_ledger_names_the_servers_attempt(runtime):
    going = Round(runtime, submit(mode="sample"))
    going.sent(3)
    os.kill(going.server.pid, signal.SIGKILL)
    going.server.ended()
    going.operation.row.update(not_before=None)
    done = run_distributed(runtime, going.operation)
    attempts = LedgerEntry.objects.filter(operation_id=done.pk).values_list("attempt", flat=True)
    assert done.attempt == 2 and set(attempts) == {2}
