"""A distributed round: clients that are operations of their own, found, dropped, and let go."""

import os
import signal
import threading
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from apps.checkpoints import copies, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.trying import StorageFailed
from apps.operations.attempts import work
from apps.operations.attempts.ledger import Ledger
from apps.operations.errors import NotAllowed
from apps.operations.filters import narrowed
from apps.operations.models import Attempt, ClientPart, Operation, PrivacyEntry
from apps.operations.placement import ServingWorker
from apps.operations.privacy import append, spent_by
from apps.operations.requests import forking, services
from apps.operations.rows import ROW_FIELDS, described_all, rows_of
from apps.operations.scheduling import claims, outlook
from apps.operations.subtasks import clients, delegation
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
from tests.operations.test_privacy import entry
from tests.waiting import wait_until
from trainops.kinds.federated.account import Account

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"


def require_same(done, whole):
    assert done.state == "COMPLETED", done.error
    assert final(done) == final(whole) and curve(done) == curve(whole)
    assert result(done) == result(whole) and ledger(done) == ledger(whole)


@pytest.mark.parametrize("mode", PRIVACY)
@pytest.mark.parametrize("strategy", ["fedavg", "fedyogi"])
def test_clients_elsewhere_come_to_the_same_bits(house, mode, strategy):
    server = {"strategy": strategy}
    whole = run(house, submit(mode=mode, server=server, placement="in_process"))
    assert whole.state == "COMPLETED", whole.error
    done = run_distributed(house, submit(mode=mode, server=server))
    require_same(done, whole)
    assert Attempt.objects.exclude(operation__in=[whole.pk, done.pk]).count() == 0
    assert not ClientPart.objects.exists(), "nothing of its clients is left"
    assert set(Checkpoint.objects.values_list("operation_id", flat=True)) == {whole.pk, done.pk}


@pytest.fixture
def gone(monkeypatch):
    """What was let go: round, client, state, and the epochs that its attempts trained."""
    gone, let_go = [], clients.let_go

    def noted(server, parts):
        for part in parts.select_related("operation"):
            attempts = Attempt.objects.filter(operation=part.operation)
            epochs = sum(each.to_step - each.from_step for each in attempts)
            gone.append((part.round, part.client, part.operation.state, epochs))
        return let_go(server, parts)

    monkeypatch.setattr(clients, "let_go", noted)
    return gone


EACH_ONCE = [(r, c, "COMPLETED", 2) for r in (1, 2) for c in range(3)]


@pytest.mark.parametrize("mode", PRIVACY)
def test_a_killed_server_takes_what_is_done_and_trains_nothing_again(house, mode, gone):
    whole = run(house, submit(mode=mode, placement="in_process"))
    going = Round(house, submit(mode=mode))
    going.sent(3)
    assert going.last_first() and going.last_first()
    os.kill(going.server.pid, signal.SIGKILL)
    assert going.server.ended().state == "RESUMING"
    assert [each.state for each in going.sent(3)] == ["PENDING", "COMPLETED", "COMPLETED"]
    assert going.last_first(), "clients go on while their server is away"
    going.operation.row.update(not_before=None)
    done = run_distributed(house, going.operation)
    assert done.attempt == 2
    require_same(done, whole)
    assert sorted(gone) == EACH_ONCE


def test_a_killed_client_is_sent_again_from_its_checkpoint(house, gone, monkeypatch):
    long = {"local_epochs": 60, "rounds": 1}
    whole = run(house, submit(mode="sample", placement="in_process", **long))
    going = Round(house, submit(mode="sample", **long))
    victim = going.sent(3)[1]
    victim.row.update(priority=FIRST)
    running = Running(house, victim)
    wait_until(lambda: services.get(victim.pk).step >= 5)
    os.kill(running.pid, signal.SIGKILL)
    assert running.ended().state == "RESUMING"
    victim.row.update(not_before=None)
    done = going.to_its_end()
    require_same(done, whole)
    assert [epochs for _, _, _, epochs in sorted(gone)][::2] == [60, 60]
    assert Attempt.objects.filter(operation=victim).count() == 0  # it was let go with it


def test_a_cancel_reaches_the_clients_and_a_resume_goes_on_with_them(house, person, gone):
    whole = run(house, submit(placement="in_process"))
    going = Round(house, submit(person))
    going.sent(3)
    assert going.last_first()
    services.cancel(operation_id=going.operation.pk, actor=person)
    going.server.held.stop = "cancel"
    assert going.server.ended().state == "CANCELLED"
    assert [each.state for each in going.sent(3)] == ["CANCELLED", "CANCELLED", "COMPLETED"]
    assert not Operation.objects.waiting().exists() and not gone
    services.resume(operation_id=going.operation.pk, actor=person)
    require_same(run_distributed(house, going.operation), whole)
    assert sorted(gone) == EACH_ONCE


def test_a_delete_takes_the_clients_with_it(house, person, tmp_path):
    going = Round(house, submit(person))
    going.sent(3)
    going.last_first()
    with pytest.raises(NotAllowed):
        services.delete(operation_id=going.operation.pk, actor=person)
    services.kill(operation_id=going.operation.pk, actor=person)
    going.server.held.stop = "kill"
    going.server.ended()
    assert any((tmp_path / "checkpoints").rglob("op_client*/*/client.pt"))
    services.delete(operation_id=going.operation.pk, actor=person)
    assert not Operation.objects.exists() and not Checkpoint.objects.exists()
    assert not any(each.is_file() for each in (tmp_path / "checkpoints").glob("op_*/**/*"))


def test_a_running_client_is_asked_to_stop_with_its_server(house, person):
    for how in ("cancel", "kill"):
        going = Round(house, submit(person))
        first, *_ = going.sent(3)
        first.row.update(state="RUNNING", attempt=1, lease_expires_at="2099-01-01T00:00Z")
        getattr(services, how)(operation_id=going.operation.pk, actor=person)
        going.server.held.stop = how
        going.server.ended()
        assert services.get(first.pk).stop_requested == how
        Operation.objects.all().delete()


def test_lists_leave_clients_out_and_say_what_they_wait_for(house, person):
    going = Round(house, submit(person, labels={"1": "nobody"}))
    going.sent(3)
    outlook.register(lambda: [ServingWorker("worker-1")])
    try:
        ask = {"part_of": going.operation.pk}
        found = rows_of(narrowed(Operation.objects.all(), ask, person), ROW_FIELDS)
        told = described_all(list(found.order_by("part__client")), person)
        listed = narrowed(Operation.objects.all(), {}, person)
    finally:
        outlook._registered.pop()
    assert [each["part_of"] for each in told] == [going.operation.pk] * 3
    assert [each["allowed_actions"] for each in told] == [[]] * 3
    waits = [each["waiting_for"]["message"] for each in told]
    assert waits[0] == "A worker takes it in a moment."
    assert waits[1] == "No worker has the label nobody."
    assert [each.pk for each in listed] == [going.operation.pk]
    going.server.held.stop = "kill"
    going.server.ended()


def test_more_servers_than_slots_do_not_wait_for_each_other(house):
    servers = [submit(), submit()]
    ids = [each.pk for each in servers]

    def is_over():
        work.work_until_idle(house)
        return not Operation.objects.filter(pk__in=ids).active().exists()

    def work_on():
        try:
            wait_until(is_over, 60)
        finally:
            connection.close()

    threads = [threading.Thread(target=work_on) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert house.holding.slots == 1
    assert [services.get(each).state for each in ids] == ["COMPLETED"] * 2


def test_who_stays_away_is_dropped_and_the_events_say_so(house):
    going = Round(house, submit(labels={"1": "nobody"}, round_timeout=1.5, min_clients=2))
    done = going.to_its_end()
    assert done.state == "COMPLETED", done.error
    assert done.result["dropped"] == 2 and done.result["final"]["clients"] == 2
    notes = done.events.filter(what="CLIENT_DROPPED").values_list("note", flat=True)
    assert sorted(notes) == ["client 1 of round 1", "client 1 of round 2"]
    assert not ClientPart.objects.exists() and not Operation.objects.waiting().exists()


def test_never_with_fewer_than_min_clients_and_it_says_what_it_waits_for(house):
    going = Round(house, submit(labels={"1": "nobody"}, round_timeout=0.5, min_clients=3))
    going.sent(3)
    told = "round 1 of 2, 2 of 3 clients done; past its time, and waits for at least 3"
    wait_until(lambda: not going.last_first() and place_of(going.operation) == told, 20)
    ClientPart.objects.get(client=1).operation.row.update(queue="")
    wait_until(lambda: ClientPart.objects.filter(round=2, client=1).exists() or going.last_first())
    wait_until(ClientPart.objects.filter(round=2, client=1).exists)
    ClientPart.objects.get(client=1).operation.row.update(queue="")
    done = going.to_its_end()
    assert done.state == "COMPLETED" and "dropped" not in done.result


def place_of(operation):
    return services.get(operation.pk).place


def test_what_is_dropped_writes_no_more(house):
    going = Round(house, submit(mode="sample"))
    part, *_ = going.sent(3)
    claimed = Operation.objects.get(pk=part.pk)
    part.row.update(state="RUNNING", attempt=1, lease_expires_at="2099-01-01T00:00Z")
    claimed.refresh_from_db()
    clients.drop(services.get(going.operation.pk), [part.pk])
    told = Ledger(claimed, account_id=going.operation.pk)
    with pytest.raises(claims.Fenced):
        told.spend([entry(1).to_json()])
    assert services.get(part.pk).reason == "DROPPED" and not ledger(going.operation)
    done = going.to_its_end()
    assert done.result["dropped"] == 1, "this round's; in the next one it is there again"


def test_a_client_that_fails_fails_its_server_by_name(house):
    explode = {"parameters": {"norm": True, "explode_in_batch": 2}}
    going = Round(house, submit(**explode))
    done = going.to_its_end()
    assert (done.state, done.reason) == ("FAILED", "JOB_ERROR")
    assert " failed in round 1: NonFiniteLoss" in done.error["message"]
    parts = Operation.objects.filter(part__server=done)
    assert any(each.pk in done.error["message"] for each in parts.filter(state="FAILED"))
    assert not parts.active().exists()


def test_nobody_asks_anything_of_a_client_alone(house, person):
    going = Round(house, submit(person))
    part, *_ = going.sent(3)
    for wish in (services.cancel, services.kill, services.resume, services.delete,
                 services.delete_checkpoints, forking.fork):  # fmt: skip
        who = {"owner": person} if wish is forking.fork else {"actor": person}
        with pytest.raises(NotAllowed, match="client 0 of round 1 of op_federated") as refused:
            wish(operation_id=part.pk, **who)
        assert refused.value.code == "PART_OF_ANOTHER"
    assert going.to_its_end().state == "COMPLETED"


def test_what_clients_begin_with_stays_until_they_have_ended(house):
    checkpoint = {"keep_last": 1, "keep_best": 0}
    going = Round(house, submit(clients=4, rounds=1, checkpoint=checkpoint))
    ids = [each.pk for each in going.sent(4)]
    given = ClientPart.objects.values_list("given_id", flat=True)[0]
    for pk in ids[:2]:
        Operation.objects.filter(pk=pk).update(priority=FIRST)
        work._work_once(house)
    mine = Checkpoint.objects.filter(operation=going.operation).order_by("step")
    wait_until(lambda: list(mine.values_list("step", flat=True)) == [0, 4])
    checkpoints.retain(going.operation.pk, keep_last=1, keep_best=0, better="min")
    kept = list(mine.values_list("pk", flat=True))
    assert given == kept[0] and len(kept) == 2
    assert going.to_its_end().state == "COMPLETED"


def test_the_sweep_settles_what_nobody_did(house):
    going = Round(house, submit())
    going.sent(3)
    os.kill(going.server.pid, signal.SIGKILL)
    going.server.ended()
    going.operation.row.update(state="FAILED", reason="WORKER_LOST")
    clients.settle_all()
    assert {each.state for each in going.sent(3)} == {"CANCELLED"}
    going.operation.row.update(state="COMPLETED")
    clients.settle_all()
    assert not ClientPart.objects.exists() and Operation.objects.count() == 1


def test_an_update_that_is_not_whole_is_trained_again(house, gone):
    whole = run(house, submit(placement="in_process"))
    going = Round(house, submit())
    going.sent(3)
    os.kill(going.server.pid, signal.SIGKILL)
    going.server.ended()
    assert going.last_first()
    found = Checkpoint.objects.get(type="final", operation__part__server=going.operation)
    (storage.directory(found.artifacts_path) / "client.pt").write_bytes(b"something else")
    going.operation.row.update(not_before=None)
    require_same(run_distributed(house, going.operation), whole)
    assert len(gone) == 7


def test_a_quota_does_not_keep_clients_from_beginning(house, person, settings):
    changed = {"checkpoint_quota_bytes": 1}
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=changed)
    done = run_distributed(house, submit(person))
    assert done.state == "COMPLETED", done.error
    assert done.events.filter(what="SAVE_FAILED").exists(), "others were refused"
    begun = {"round": Checkpoint.objects.get(operation=done, type="final").state["round"]}
    assert not clients.wait_for(done, begun)
    done.attempt += 1  # it goes on from an older checkpoint, on a branch of its own
    assert clients.wait_for(done, begun)


def test_clients_go_where_their_server_was_asked_to(house):
    operation = submit(labels={"1": "elsewhere"})
    operation.row.update(queue="here")
    house.labels = ["here"]
    going = Round(house, services.get(operation.pk))
    assert [each.queue for each in going.sent(3)] == ["here", "elsewhere", "here"]
    house.labels = ["here", "elsewhere"]
    assert going.to_its_end().state == "COMPLETED"


def test_a_night_without_workers_is_not_the_clients_time(house):
    going = Round(house, submit(clients=4, rounds=1, round_timeout=600, min_clients=1))
    going.sent(4)
    os.kill(going.server.pid, signal.SIGKILL)
    going.server.ended()
    ClientPart.objects.update(sent_at=timezone.now() - timedelta(hours=12))
    going.operation.row.update(not_before=None)
    done = run_distributed(house, going.operation)
    assert done.state == "COMPLETED" and "dropped" not in done.result


def test_who_was_lost_in_the_night_has_its_time_too(house):
    going = Round(house, submit(clients=2, rounds=1))
    waits, runs = (each.pk for each in going.sent(2))
    before = timezone.now() - timedelta(hours=12)
    ClientPart.objects.update(sent_at=before)
    Operation.objects.filter(pk=runs).update(
        state="RUNNING", attempt=1, lease_expires_at=before + timedelta(minutes=1)
    )
    clients._count_anew(services.get(going.operation.pk), [waits, runs])
    assert clients.age_seconds([waits]) < 60 and clients.age_seconds([runs]) < 60
    Operation.objects.filter(pk=runs).update(lease_expires_at=timezone.now() + timedelta(hours=1))
    ClientPart.objects.update(sent_at=before)
    clients._count_anew(services.get(going.operation.pk), [waits, runs])
    assert clients.age_seconds([waits]) < 60 and clients.age_seconds([runs]) > 3600
    Operation.objects.filter(pk=runs).update(state="PENDING", attempt=0, lease_expires_at=None)
    assert going.to_its_end().state == "COMPLETED"


def test_a_drained_worker_does_not_wait_for_what_nobody_there_will_do(house):
    going = Round(house, submit())
    going.sent(3)
    going.house.holding.drain(True)
    left = going.server.ended()
    assert (left.state, left.reason) == ("RESUMING", "SHUTDOWN")
    assert going.house.holding.all() == []
    going.house.holding.drain(False)
    left.row.update(not_before=None)
    assert run_distributed(house, going.operation).state == "COMPLETED"


@pytest.mark.parametrize(("failures", "num_clients"), [(1, 14), (99, 3)])
def test_what_a_client_saved_is_fetched_again_where_the_storage_was_away(
    house, monkeypatch, failures, num_clients
):
    """One outage is one failure of each, however many are fetched at once."""
    left, real = Counter(), copies.make_local

    def make_local(path, digest, stop):
        left[path] += 1
        if left[path] <= failures:
            raise StorageFailed("the bucket does not answer")
        return real(path, digest, stop)

    monkeypatch.setattr(delegation.copies, "make_local", make_local)
    monkeypatch.setattr(delegation, "FETCH_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(delegation, "LOOK_SECONDS", 0.01)
    going = Round(house, submit(restart={"policy": "never"}, clients=num_clients, rounds=1))
    going.sent(num_clients)
    done = going.to_its_end()
    if failures == 1:
        assert done.state == "COMPLETED", done.error
    else:
        assert (done.state, done.reason) == ("FAILED", "STORAGE_ERROR")
        assert "what a client saved: the bucket does not answer" in done.error["message"]


def test_what_a_way_that_was_left_spends_until_it_is_let_go_counts(house, monkeypatch):
    """A client of a later round, whose epoch ends while its server comes back to an earlier one."""
    whole = run_distributed(house, submit(mode="hybrid", rounds=1))
    delta, late = whole.config["privacy"]["delta"], entry(7, round=2, steps=50)
    account = Account(delta)
    account.add([late, *(each for each in spent_by(whole.pk) if each.level == "sample")])
    send = clients.send

    def spending(server, directory, parts):
        append(server.pk, server.attempt, [late])  # changes nothing the second time
        return send(server, directory, parts)

    monkeypatch.setattr(clients, "send", spending)
    privacy = {"mode": "hybrid", **PRIVACY["hybrid"], "target_epsilon": account.epsilon * 1.001}
    done = run_distributed(house, submit(mode="hybrid", rounds=2, privacy=privacy))
    assert done.result["reason"] == "PRIVACY_BUDGET"
    assert {each.level for each in spent_by(done.pk)} == {"sample"}  # no model was released


def test_the_ledger_names_the_servers_attempt(house):
    going = Round(house, submit(mode="sample"))
    going.sent(3)
    os.kill(going.server.pid, signal.SIGKILL)
    going.server.ended()
    going.operation.row.update(not_before=None)
    done = run_distributed(house, going.operation)
    attempts = PrivacyEntry.objects.filter(operation_id=done.pk).values_list("attempt", flat=True)
    assert done.attempt == 2 and set(attempts) == {2}
