"""The first checkpoint of an attempt, loaded by a second process while the run goes on."""

import os
import signal

import psutil
import pytest
from django.contrib.auth.models import User

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import outcomes
from apps.operations.models import Attempt, Event, LogChunk, MetricPoint
from apps.operations.requests import services
from tests.operations import distributed
from tests.operations.attempts import Running, run, submit
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True), pytest.mark.slow]
EVERY = {"every_steps": 6, "keep_last": 1000}  # the second process may load it late


def checked(runtime, person, what="nothing", **given):
    """Run until the self-check has said something, then cancel; return what it said."""
    given = {"step_seconds": 0.02, "epochs": 400, "checkpoint": EVERY} | given
    running = Running(runtime, submit(what, owner=person, **given))
    found = said(running.operation)
    stop(running, person, services.cancel)
    return running.ended(), found


def stop(running, person, how):
    """Ask for it, and do what the worker's thread does when it has read the wish."""
    operation = how(operation_id=running.operation.pk, actor=person)
    running.held.stop = operation.stop_requested


def said(operation):
    events = Event.objects.filter(operation=operation, what__startswith="SELF_CHECK")
    wait_until(events.exists)
    return events.get()


def test_equal_steps_are_said_and_nothing_else_is_written(runtime, person):
    operation, event = checked(runtime, person)
    assert (event.what, event.attempt) == ("SELF_CHECKED", 1), event.note
    assert "the first checkpoint (step 6) was loaded by a second process" in event.note
    assert event.note.endswith("steps were equal")
    receipt = Attempt.objects.get(operation=operation).receipt
    assert receipt["self_check"]["verdict"] == "equal" and receipt["exact"]
    found = receipt["self_check"]
    assert found["until_step"] - found["step"] >= 3
    rows = Checkpoint.objects.filter(operation=operation)
    there = {each.name for each in storage.operation_directory(operation.pk).iterdir()}
    assert there == {each.artifacts_path.rpartition("/")[2] for each in rows}
    steps = list(MetricPoint.objects.values_list("name", "step"))
    assert len(steps) == len(set(steps))


@pytest.mark.slow
def test_a_counter_that_no_checkpoint_has_is_reported_and_the_next_resume_is_not_exact(
    runtime, person
):
    operation, event = checked(runtime, person, "counter")
    assert event.what == "SELF_CHECK_DIFFERS"
    assert "model" in event.note and "optimizer" in event.note and "scheduler" not in event.note
    services.resume(operation_id=operation.pk, actor=person)
    running = Running(runtime, operation)
    restored = Event.objects.filter(operation=operation, what="RESTORED")
    wait_until(restored.exists)
    assert restored.get().note.endswith("not exactly")
    stop(running, person, services.cancel)
    running.ended()
    receipt = Attempt.objects.get(operation=operation, number=2).receipt
    assert not receipt["exact"]
    (item,) = [each for each in receipt["items"] if each["part"] == "self-check"]
    assert not item["exact"] and "model" in item["note"]


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_loaded_is_reported_after_the_first(runtime, person, client):
    operation, event = checked(runtime, person, "grow")
    assert event.what == "SELF_CHECK_FAILED"
    assert "cannot be loaded: IncompatibleState: model has grown" in event.note
    client.force_login(User.objects.create_superuser("root"))
    page = client.get(f"/operations/{operation.pk}/").content.decode()
    assert "Needs attention: its checkpoints cannot be resumed." in page
    assert operation.state == "CANCELLED" and operation.self_check == "not_loaded"
    assert [line.name for line in client.get("/?tab=attention").context["lines"]] == [
        operation.name
    ]


@pytest.mark.slow
def test_it_can_be_switched_off(runtime, person):
    operation = run(
        runtime, submit(step_seconds=0.02, epochs=8, checkpoint=EVERY | {"self_check": False})
    )
    assert operation.state == "COMPLETED"
    assert not Event.objects.filter(what__startswith="SELF_CHECK").exists()


@pytest.mark.slow
def test_a_second_process_that_dies_changes_nothing(runtime, person):
    running = Running(runtime, submit(step_seconds=0.02, epochs=400, checkpoint=EVERY))
    running.until_step(1)
    (second,) = psutil.Process(running.pid).children()
    assert os.getpgid(second.pid) == running.pid
    second.kill()
    event = said(running.operation)
    assert event.what == "SELF_CHECK_NOT_MADE" and "its process has died" in event.note
    stop(running, person, services.cancel)
    assert running.ended().state == "CANCELLED"


@pytest.mark.slow
def test_a_second_process_that_dies_before_the_first_checkpoint_is_noticed_at_once(runtime, person):
    seldom = {"every_steps": 4000}  # the first one is after ten epochs: in eight seconds
    running = Running(runtime, submit(step_seconds=0.2, epochs=400, checkpoint=seldom))
    running.until_step(1)
    (second,) = psutil.Process(running.pid).children()
    second.kill()
    event = said(running.operation)
    assert event.what == "SELF_CHECK_NOT_MADE"
    assert event.note.startswith("the first checkpoint was not checked")
    stop(running, person, services.cancel)
    assert running.ended().state == "CANCELLED"


@pytest.mark.slow
def test_memory_that_ran_out_in_the_second_process_does_not_explain_a_later_kill(
    runtime, person, monkeypatch
):
    num_kills = [0]
    monkeypatch.setattr(outcomes, "_num_oom_kills", lambda: num_kills[0])
    running = Running(runtime, submit(step_seconds=0.02, epochs=400, checkpoint=EVERY))
    running.until_step(1)
    (second,) = psutil.Process(running.pid).children()
    num_kills[0] += 1  # of the machine
    second.kill()
    said(running.operation)
    os.kill(running.pid, signal.SIGKILL)
    assert running.ended().reason == "PROCESS_KILLED"


@pytest.mark.slow
def test_nothing_is_left_of_it_when_the_attempt_is_killed(runtime, person):
    running = Running(runtime, submit(step_seconds=0.02, epochs=400))
    running.until_step(1)
    (second,) = psutil.Process(running.pid).children()
    stop(running, person, services.kill)
    running.ended()
    wait_until(lambda: not psutil.pid_exists(second.pid))


@pytest.mark.slow
def test_what_it_prints_is_not_in_the_log(runtime, person):
    _, event = checked(runtime, person, "print", at=7)
    assert event.what == "SELF_CHECKED"
    log = "".join(LogChunk.objects.values_list("text", flat=True))
    assert log.count("a line from the job") == 1


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "hybrid"])
def test_a_distributed_run_has_its_first_checkpoint_loaded_without_its_clients(runtime, mode):
    going = distributed.Round(runtime, distributed.submit(mode=mode))
    clients = going.sent(3)
    event = said(going.operation)
    assert event.what == "SELF_CHECKED", event.note
    assert "was loaded into a fresh job; the client epochs after it were not compared" in event.note
    assert going.to_its_end().state == "COMPLETED"
    assert going.operation.events.filter(what__startswith="SELF_CHECK").count() == 1
    names = [each.pk for each in clients]
    assert not Event.objects.filter(operation_id__in=names, what__startswith="SELF_CHECK").exists()
