"""Operations of several nodes: workers on machines of their own, with a network that fails."""

import os
import signal
from contextlib import ExitStack, contextmanager, suppress

import psutil
import pytest

from tests.journey import networks
from tests.journey.networks import Machines
from tests.journey.stack import DATABASE, joined, running
from tests.waiting import has_ended, wait_until
from trainops.launch.embedded import redis_url, socket_directory

pytestmark = [
    pytest.mark.faults,
    pytest.mark.journey,
    pytest.mark.slow,
    pytest.mark.skipif(not networks.are_possible(), reason="needs root and network namespaces"),
]
CONFIG = {
    "recipe": "digits_loop",
    "parameters": {"epochs": 300, "batch_size": 256},
    "threads": 1,
    "checkpoint": {"every_steps": 200, "every_seconds": 1, "self_check": False},
}


@contextmanager
def installation(directory, number, **environment):
    """Start an installation of `number` machines, each with a worker of four slots."""
    with (
        Machines(number).opened() as machines,
        running(directory / "var", workers=0, TRAINOPS_NODE_WAIT_SECONDS="3") as stack,
        ExitStack() as workers,
    ):
        stores = {
            "TRAINOPS_BROKER_URL": redis_url(socket_directory(stack.data_dir) / "redis.sock"),
            "TRAINOPS_DATABASE_URL": f"sqlite:///{stack.data_dir / DATABASE}",
            "TRAINOPS_WORKER_SLOTS": "4",
            "TRAINOPS_NODE_WAIT_SECONDS": "3",
            "TRAINOPS_NODE_JOIN_SECONDS": "60",
        }
        stack.machines = machines
        stack.ups = [
            workers.enter_context(
                joined(
                    stack,
                    program=machines.program(each),
                    TRAINOPS_NODE_ADDRESS=machines.addresses[each],
                    **stores | environment,
                )
            )
            for each in range(number)
        ]
        wait_until(lambda: len(stack.get("workers")) == number)
        yield stack


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with installation(tmp_path_factory.mktemp("two"), 2) as stack:
        yield stack


def submit(stack, **config):
    return stack.submit(kind="loop", **CONFIG | config)


def attempts(stack, operation_id):
    return stack.get(f"operations/{operation_id}/attempts")


def children(stack, number):
    """Return the processes of attempts on one machine: that of the node first, then its ranks."""
    family = psutil.Process(stack.ups[number].pid).children(recursive=True)
    forked = {each for each in family if "trainops.process.forkserver" in each.cmdline()}
    return sorted((each for each in forked if each.parent() in forked), key=lambda each: each.pid)


@pytest.fixture(scope="module")
def undisturbed(two):
    """Return the operation that computed with N processes of one machine."""
    found = {}

    def of(processes):
        if processes not in found:
            found[processes] = submit(two, processes=processes)
        two.wait(found[processes], "COMPLETED")
        return found[processes]

    return of


def are_equal(stack, found, expected):
    assert stack.artifacts(found) == stack.artifacts(expected)
    assert stack.curve(found) == stack.curve(expected)


@pytest.mark.exhaustive
def test_two_machines_compute_what_one_computes(two, undisturbed):
    operation = submit(two, nodes=2)
    two.wait(operation, "COMPLETED")
    (attempt,) = attempts(two, operation)
    assert attempt["num_nodes"] == 2
    are_equal(two, operation, undisturbed(2))
    wait_until(lambda: not children(two, 0) and not children(two, 1))


def machine_of(stack, worker_id):
    """Return the number of the machine of a worker, and the id of its process."""
    (pid,) = (each["pid"] for each in stack.get("workers") if each["worker_id"] == worker_id)
    families = [psutil.Process(up.pid).children(recursive=True) for up in stack.ups]
    (found,) = (n for n, family in enumerate(families) if pid in [each.pid for each in family])
    return found, pid


class Strike:
    """What happens to an operation of two nodes while it computes."""

    def __init__(self, stack, operation):
        self.stack, self.operation = stack, operation
        leader = stack.wait_step(operation, 100)["worker_id"]
        self.leading, _ = machine_of(stack, leader)
        (other,) = {each["worker_id"] for each in stack.get("workers")} - {leader}
        self.other, self.worker_pid = machine_of(stack, other)

    def first_attempt_has_ended(self):
        return wait_until(lambda: attempts(self.stack, self.operation)[-1]["ended_at"])

    def rank_is_killed(self):
        children(self.stack, self.other)[-1].kill()

    def node_is_killed(self):
        os.killpg(children(self.stack, self.other)[0].pid, signal.SIGKILL)

    def worker_is_killed(self):
        os.kill(self.worker_pid, signal.SIGKILL)

    def leader_is_killed(self):
        os.killpg(children(self.stack, self.leading)[0].pid, signal.SIGKILL)

    def node_is_frozen(self):
        frozen = children(self.stack, self.other)
        os.killpg(frozen[0].pid, signal.SIGSTOP)
        self.first_attempt_has_ended()
        with suppress(ProcessLookupError):  # its worker may have killed it already
            os.killpg(frozen[0].pid, signal.SIGCONT)
        wait_until(lambda: all(has_ended(each) for each in frozen))

    def network_is_cut(self):
        left = children(self.stack, self.other)
        self.stack.machines.cut(self.other)
        self.first_attempt_has_ended()
        wait_until(lambda: all(has_ended(each) for each in left))
        self.stack.machines.mend(self.other)

    def worker_is_stopped(self):
        os.kill(self.worker_pid, signal.SIGTERM)


SILENT = ("did not respond within 5 s", "no worker claimed it")  # on a busy machine the lease ends
STRIKES = {
    "rank_is_killed": ("PROCESS_KILLED", "ended by SIGKILL"),
    "node_is_killed": ("WORKER_LOST", "has ended"),
    "worker_is_killed": ("WORKER_LOST", "has ended"),
    "leader_is_killed": ("PROCESS_KILLED", "its process ended by SIGKILL"),
    "node_is_frozen": ("WORKER_LOST", *SILENT),
    "network_is_cut": ("WORKER_LOST", *SILENT),
    "worker_is_stopped": ("SHUTDOWN", "got a signal to stop"),
}


@pytest.mark.parametrize("strike", STRIKES)
def test_whatever_happens_to_a_node_the_result_is_the_same(strike, two, undisturbed):
    expected = undisturbed(2)
    operation = submit(two, nodes=2)
    getattr(Strike(two, operation), strike)()
    two.wait(operation, "COMPLETED")
    *later, first = attempts(two, operation)
    reason, *notes = STRIKES[strike]
    assert (first["reason"], later[-1]["num_nodes"]) == (reason, 2)
    assert any(each in first["note"] for each in notes), first["note"]
    assert all(each["receipt"]["exact"] for each in later if each["receipt"])
    are_equal(two, operation, expected)


@pytest.mark.exhaustive
def test_a_cancelled_operation_continues_on_two_machines(two, undisturbed):
    expected = undisturbed(4)
    operation = submit(two, nodes=2, processes=2)
    two.wait_step(operation, 50)
    two.post(f"operations/{operation}/cancel")
    assert two.wait(operation, "CANCELLED")["step"] > 0
    two.post(f"operations/{operation}/resume")
    two.wait(operation, "COMPLETED")
    are_equal(two, operation, expected)


@pytest.mark.exhaustive
def test_an_operation_that_needs_more_machines_says_so(two):
    operation = submit(two, nodes=3)
    try:
        blocked = wait_until(lambda: two.get(f"operations/{operation}")["waiting_for"])
        assert blocked["code"] == "TOO_FEW_WORKERS"
        assert blocked["message"] == "Needs 3 workers that serve the kind loop; 2 do."
    finally:
        two.post(f"operations/{operation}/cancel")


@pytest.mark.exhaustive
def test_a_restart_continues_with_the_machines_that_are_left(tmp_path):
    with installation(tmp_path, 3) as stack:
        operation = submit(stack, nodes=3, min_nodes=2)
        worker_id = stack.wait_step(operation, 100)["worker_id"]
        assert attempts(stack, operation)[0]["num_nodes"] == 3
        gone = (machine_of(stack, worker_id)[0] + 1) % 3
        stack.ups[gone].send_signal(signal.SIGTERM)
        stack.wait(operation, "COMPLETED")
        last = attempts(stack, operation)[0]
        assert last["num_nodes"] == 2 and not last["receipt"]["exact"]
        (note,) = (each["note"] for each in last["receipt"]["items"] if each["part"] == "processes")
        assert note.startswith("was 3, is 2")
