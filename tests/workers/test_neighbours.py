"""A worker process that was killed: what it ran goes on before its lease runs out."""

import os
import subprocess
import sys

import pytest

from apps.operations.models import Attempt
from apps.operations.requests import services
from apps.workers import neighbours, registry
from apps.workers.models import Worker
from tests.operations import rows
from tests.waiting import wait_until
from trainops import process_identity

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def process():
    """A process of this machine, and what tells it from every other one."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ) as child:
        yield child
        child.kill()


def identity_of(process):
    """What the process would say of itself."""
    started = process_identity._started(process.pid)
    return {**process_identity.identity(), "pid": process.pid, "started": started}


def ended(process):
    process.kill()
    process.wait()


def running(process, *, child=None):
    registry.register(worker_id="worker-1", host="here", process=identity_of(process))
    operation = rows.claimed()
    Attempt.objects.filter(operation=operation).update(pid=child.pid if child else None)
    return operation


def test_what_a_killed_worker_ran_is_handed_back_before_its_lease_runs_out(process):
    operation = running(process)
    assert neighbours.recover_ended(actor="worker-2")  # nothing has ended
    assert services.get(operation.pk).state == "RUNNING"

    ended(process)
    assert neighbours.recover_ended(actor="worker-2")

    operation = services.get(operation.pk)
    assert (operation.state, operation.reason) == ("RESUMING", "WORKER_LOST")
    assert operation.events.first().note == neighbours.NOTE
    assert operation.events.first().actor == "worker-2"
    assert not Worker.objects.exists()


def test_it_waits_until_nothing_of_the_attempt_is_left(process):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        operation = running(process, child=child)
        ended(process)
        assert not neighbours.recover_ended(actor="worker-2")
        assert services.get(operation.pk).state == "RUNNING"
        assert Worker.objects.exists()
        child.kill()
    assert neighbours.recover_ended(actor="worker-2")
    assert services.get(operation.pk).state == "RESUMING"


def test_a_zombie_counts_as_ended(process):
    registered = identity_of(process)
    process.kill()
    wait_until(lambda: process_identity.has_ended(registered))  # nobody has waited for it yet
    assert process_identity.group_has_ended(process.pid)


@pytest.mark.parametrize("name", ["boot_id", "pid_namespace"])
def test_of_another_machine_or_container_nothing_is_known(process, name):
    operation = running(process)
    Worker.objects.update(process=identity_of(process) | {name: "another"})
    ended(process)
    assert neighbours.recover_ended(actor="worker-2")
    assert services.get(operation.pk).state == "RUNNING"
    assert Worker.objects.exists()


def test_a_process_id_that_was_reused_is_not_taken_for_the_same():
    mine = process_identity.identity()
    assert not process_identity.has_ended(mine)
    assert process_identity.has_ended(mine | {"started": mine["started"] - 1})
    assert mine["pid"] == os.getpid()


def test_a_renewal_or_another_attempt_that_comes_first_wins(process, monkeypatch):
    operation = running(process)
    ended(process)
    operation.row.update(worker_id="worker-3", attempt=2)
    assert neighbours.recover_ended(actor="worker-2")
    assert services.get(operation.pk).state == "RUNNING"


def test_registering_under_the_same_name_keeps_what_the_new_process_says(process):
    """The row of the predecessor must not stay: pid, slots and labels were its own."""
    running(process)
    ended(process)
    neighbours.recover_ended(actor="worker-1")
    registry.register(worker_id="worker-1", host="here", slots=3, pid=7, labels=["a100"])
    row = Worker.objects.get()
    assert (row.slots, row.pid, row.labels) == (3, 7, ["a100"])


@pytest.fixture
def hidden(process, monkeypatch, tmp_path):
    """The process, as one of another user where /proc hides those (hidepid=2)."""
    registered = identity_of(process)
    process_identity._machine()  # before there is nothing to read
    monkeypatch.setattr(process_identity, "PROC", tmp_path)
    return registered


def not_permitted(pid, number):
    raise PermissionError


@pytest.mark.parametrize("is_permitted", [True, False])
def test_a_process_that_cannot_be_seen_has_not_ended(process, hidden, monkeypatch, is_permitted):
    with monkeypatch.context() as patch:
        if not is_permitted:
            patch.setattr(os, "kill", not_permitted)
            patch.setattr(os, "killpg", not_permitted)
        assert not process_identity.has_ended(hidden)
        assert not process_identity.group_has_ended(process.pid)


def test_one_that_cannot_be_seen_has_ended_once_the_kernel_does_not_know_it(process, hidden):
    ended(process)
    assert process_identity.has_ended(hidden)
    assert process_identity.group_has_ended(process.pid)
