"""Whole attempts with a bucket: real children, a real S3 server, and what may go wrong between."""

import os
import shutil
import signal

import pytest

from apps.checkpoints import place, remote
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.trying import RetryPolicy
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Operation
from apps.operations.requests import deletion, forking, services
from tests.operations.attempts import Running, killed_after_its_first_checkpoint, run, submit
from tests.operations.test_supervisor import curve, weights
from tests.thinning import some_of
from tests.waiting import has_ended, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.django_db(transaction=True)]


def again(runtime, operation):
    """The next attempt, without the pause before it."""
    operation.row.update(not_before=None)
    return run(runtime, operation)


def events(operation, what):
    return list(operation.events.filter(what=what).values_list("note", flat=True))


@pytest.fixture
def whole(runtime, store):
    """An undisturbed run of 20 epochs: what every other one must equal."""
    return run(runtime, submit(epochs=20))


def assert_identical(resumed, whole):
    assert (resumed.state, resumed.reason) == ("COMPLETED", "")
    assert weights(resumed) == weights(whole)
    assert curve(resumed) == curve(whole)


def cancelled(runtime, person, running):
    services.cancel(operation_id=running.operation.pk, actor=person)
    running.held.stop = Operation.Stop.CANCEL
    return running.ended()


@pytest.mark.whole
@pytest.mark.parametrize("secret_keys", [(), (b"k" * 32,)], ids=["plain", "encrypted"])
def test_a_machine_with_an_empty_disk_continues_to_the_identical_result(
    runtime, store, machine, person, whole, settings, secret_keys
):
    settings.CHECKPOINT_SECRET_KEYS = secret_keys
    rarely = {"every_epochs": 1000}
    cancelling = submit(step_seconds=0.04, epochs=20, checkpoint=rarely)
    running = Running(runtime, cancelling).until_step(10)
    operation = cancelled(runtime, person, running)
    checkpoint = operation.checkpoints.get()
    assert len(store.of(checkpoint)) == len(checkpoint.manifest) + 1
    services.resume(operation_id=operation.pk, actor=person)

    disk = machine("second")
    assert not disk.exists()
    resumed = run(runtime, operation)

    assert resumed.attempts.first().from_step == checkpoint.step > 0
    assert resumed.attempts.first().receipt["exact"]
    assert_identical(resumed, whole)
    wait_until(lambda: not store.of(checkpoint))  # only the result is kept
    assert len(store.names()) == 2 * len(store.of(resumed.checkpoints.get()))


@pytest.mark.exhaustive
def test_a_fork_has_objects_of_its_own(runtime, store, machine, person, whole):
    half = run(runtime, submit(epochs=10, checkpoint={"every_epochs": 1000}))
    machine("second")
    fork = forking.fork(operation_id=half.pk, owner=person, config={"epochs": 20})
    deletion.delete(operation_id=half.pk, actor=person)
    wait_until(lambda: not store.names(f"of/tests/{half.pk}/"))
    machine("third")
    ended = run(runtime, fork)
    assert (ended.state, ended.attempts.get().from_step) == ("COMPLETED", half.step)
    assert weights(ended) == weights(whole)


@pytest.mark.parametrize("fault", some_of(["500", "slow_down", "cut_upload", "stall"], every=3))
def test_faults_that_pass_cost_a_run_nothing(runtime, store, s3_proxy, whole, fault):
    s3_proxy.arm(fault, 2)
    operation = run(runtime, submit(epochs=20, checkpoint={"every_steps": 30}))
    assert s3_proxy.num_failed == 2
    assert_identical(operation, whole)
    assert not events(operation, "SAVE_FAILED")


@pytest.mark.parametrize("fault", ["500", "expired"])
def test_a_checkpoint_that_cannot_be_uploaded_is_said_and_the_run_continues(
    runtime, store, s3_proxy, whole, fault
):
    s3_proxy.arm(fault, part="-periodic/")
    operation = run(runtime, submit(step_seconds=0.01, epochs=20, checkpoint={"every_steps": 30}))
    assert_identical(operation, whole)
    code = {"500": "InternalError", "expired": "ExpiredToken"}[fault]
    assert code in events(operation, "SAVE_FAILED")[0]
    assert [each.type for each in operation.checkpoints.all()] == ["final"]
    assert not list(store.names(f"of/tests/{operation.pk}/a0001-s0000000030"))


def test_a_result_that_cannot_be_uploaded_is_uploaded_by_the_next_attempt(
    runtime, store, s3_proxy, whole
):
    s3_proxy.arm("expired")
    operation = run(runtime, submit(epochs=20))
    assert (operation.state, operation.reason) == ("RESUMING", Reason.STORAGE_ERROR)
    assert "ExpiredToken" in operation.attempts.get().note
    operation = again(runtime, operation)  # which cannot even begin
    assert (operation.state, operation.reason) == ("RESUMING", Reason.STORAGE_ERROR)

    s3_proxy.disarm()
    operation = again(runtime, operation)

    assert_identical(operation, whole)
    assert operation.attempts.first().from_step == operation.total_steps
    assert events(operation, "ADOPTED")


@pytest.mark.exhaustive
@pytest.mark.parametrize("harm", ["lose", "damage"])
def test_what_went_bad_in_the_bucket_is_said_and_an_older_one_is_used(
    runtime, store, machine, whole, harm
):
    keep = {"every_steps": 12, "keep_last": 3}
    hanging = submit("hang", at=27, epochs=20, step_seconds=0.06, checkpoint=keep)
    running = Running(runtime, hanging)
    committed = Checkpoint.objects.filter(operation=hanging)
    wait_until(lambda: committed.count() == 2)
    os.kill(running.pid, signal.SIGKILL)
    operation = running.ended()
    newest, older = operation.checkpoints.newest_first()
    getattr(store, harm)(newest)
    machine("second")

    operation.row.update(config=operation.config | {"parameters": {"what": "nothing"}})
    resumed = again(runtime, operation)

    assert resumed.attempts.first().from_step == older.step
    said = {"lose": "CHECKPOINT_UNAVAILABLE", "damage": "CHECKPOINT_CORRUPTED"}[harm]
    assert "trying an older one" in events(resumed, said)[0]
    assert_identical(resumed, whole)


def test_with_every_object_gone_it_does_not_start_over(runtime, store, machine):
    operation = killed_after_its_first_checkpoint(runtime, every_steps=4)
    store.lose(operation.checkpoints.get())
    machine("second")
    operation = again(runtime, operation)
    assert (operation.state, operation.reason) == ("FAILED", Reason.CHECKPOINT_CORRUPTED)


def test_with_the_storage_itself_gone_it_waits(runtime, store, machine):
    operation = killed_after_its_first_checkpoint(runtime, every_steps=4)
    store.empty()  # the identity file, too
    machine("second")
    operation = again(runtime, operation)
    assert (operation.state, operation.reason) == ("RESUMING", Reason.STORAGE_ERROR)
    assert operation.checkpoints.get().health == "healthy"


def test_a_bucket_that_does_not_answer_corrupts_nothing(runtime, store, machine, s3_proxy):
    operation = killed_after_its_first_checkpoint(runtime, every_steps=4)
    machine("second")
    s3_proxy.arm("500", methods=("GET", "HEAD"))
    operation = again(runtime, operation)
    assert (operation.state, operation.reason) == ("RESUMING", Reason.STORAGE_ERROR)
    assert operation.checkpoints.get().health == "healthy"


def test_steps_go_on_while_an_upload_stalls_and_a_kill_is_heard(
    runtime, store, s3_proxy, monkeypatch
):
    monkeypatch.setattr(remote, "BACKGROUND", RetryPolicy(tries=1000, longest_seconds=1))
    place.require()
    s3_proxy.arm("stall")
    limits = {"stall_timeout_seconds": 30}
    operation = submit(step_seconds=0.01, epochs=500, checkpoint={"every_steps": 4}, limits=limits)
    running = Running(runtime, operation)
    wait_until(lambda: s3_proxy.num_failed)
    running.until_step(services.get(operation.pk).step + 40)
    assert not operation.checkpoints.exists()
    running.held.stop = Operation.Stop.KILL
    operation = running.ended()
    assert (operation.state, operation.reason) == ("CANCELLED", Reason.KILLED_BY_PERSON)


@pytest.mark.exhaustive
def test_what_waits_for_the_upload_of_its_result_is_not_stalled(runtime, store, s3_proxy, whole):
    s3_proxy.arm("stall", 7)  # of a second each
    limits = {"stall_timeout_seconds": 6}
    operation = run(runtime, submit(epochs=20, checkpoint={"every_epochs": 1000}, limits=limits))
    assert s3_proxy.num_failed == 7
    assert_identical(operation, whole)


@pytest.mark.exhaustive
def test_a_cancel_is_bounded_and_what_it_saved_is_uploaded_by_the_resume(
    runtime, store, s3_proxy, person, whole
):
    limits = {"cancel_timeout_seconds": 1.5}
    once = {"every_steps": 8, "every_epochs": 1000}
    cancelling = submit(step_seconds=0.05, epochs=20, limits=limits, checkpoint=once)
    running = Running(runtime, cancelling)
    wait_until(cancelling.checkpoints.exists)
    s3_proxy.arm("stall")
    operation = cancelled(runtime, person, running)
    # Whichever is first: the time is over, or the child has left what it saved to the next owner.
    assert operation.state == "CANCELLED"
    assert operation.reason in (Reason.CANCEL_TIMEOUT, Reason.CANCELLED_BY_PERSON)
    committed = operation.checkpoints.newest_first().first()

    s3_proxy.disarm()
    services.resume(operation_id=operation.pk, actor=person)
    resumed = run(runtime, operation)

    assert events(resumed, "ADOPTED")
    assert resumed.attempts.first().from_step > committed.step
    assert_identical(resumed, whole)


@pytest.mark.exhaustive
def test_a_cancel_during_the_download_needs_no_patience(runtime, store, s3_proxy, machine, person):
    operation = killed_after_its_first_checkpoint(runtime, every_steps=4)
    machine("second")
    operation.row.update(not_before=None)
    s3_proxy.arm("stall", methods=("GET", "HEAD"))
    running = Running(runtime, operation)
    wait_until(lambda: s3_proxy.num_failed)
    operation = cancelled(runtime, person, running)
    assert (operation.state, operation.reason) == ("CANCELLED", Reason.CANCELLED_BY_PERSON)
    assert operation.checkpoints.get().health == "healthy"


def test_a_worker_that_must_go_hands_back_what_it_has_not_begun(runtime, store, s3_proxy, machine):
    operation = killed_after_its_first_checkpoint(runtime, every_steps=4)
    machine("second")
    operation.row.update(not_before=None)
    s3_proxy.arm("stall", methods=("GET", "HEAD"))
    running = Running(runtime, operation)
    wait_until(lambda: s3_proxy.num_failed)
    runtime.slots.close(gone_in_seconds=10)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.SHUTDOWN)


def test_what_a_process_staged_before_it_died_is_uploaded_and_committed(runtime, store, s3_proxy):
    place.require()
    s3_proxy.arm("stall", 1)
    running = Running(runtime, submit("hang", at=5, checkpoint={"every_steps": 4}))
    wait_until(lambda: s3_proxy.num_failed)
    pid = running.pid
    os.kill(pid, signal.SIGKILL)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.PROCESS_KILLED)
    assert operation.checkpoints.get().step == 4
    assert has_ended(pid)


def test_a_ghosts_upload_counts_for_nothing(runtime, store, s3_proxy):
    place.require()
    s3_proxy.arm("stall")
    running = Running(runtime, submit("hang", at=5, checkpoint={"every_steps": 4}))
    wait_until(lambda: s3_proxy.num_failed)
    operation = services.get(running.operation.pk)
    operation.row.move(State.RESUMING, actor="sweep")
    running.held.is_lost = True
    after = running.ended()
    s3_proxy.disarm()
    assert (after.state, after.checkpoints.count()) == ("RESUMING", 0)


@pytest.mark.exhaustive
def test_a_disk_that_was_emptied_between_two_attempts_is_no_loss(runtime, store, settings, whole):
    keep = {"every_steps": 4}
    operation = killed_after_its_first_checkpoint(runtime, every_steps=4, epochs=20)
    shutil.rmtree(settings.CHECKPOINT_ROOT)
    config = operation.config | {"parameters": {"what": "nothing"}}
    operation.row.update(config=config | {"checkpoint": operation.config["checkpoint"] | keep})
    assert_identical(again(runtime, operation), whole)
