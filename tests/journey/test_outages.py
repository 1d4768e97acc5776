"""What goes away and comes back: broker, database, disk, network, clock, the machine itself."""

import signal
from contextlib import contextmanager, suppress

import psutil
import pytest

from tests.faults.faults import NURSERY, WORKER, fill
from tests.faults.inside import sitecustomize as inside
from tests.faults.installations import two_machines
from tests.journey.stack import QUICK
from tests.thinning import some_of
from tests.waiting import has_ended, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.journey, pytest.mark.slow]
CONFIG = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.02},
    "epochs": 60,
    "batch_size": 16,
    "scheduler": "cosine",
    # The steps of a second process would be counted, too.
    "checkpoint": {
        "every_steps": 50,
        "keep_last": 100,
        "keep_after_success": True,
        "self_check": False,
    },
}
NUM_STEPS = 240
SHUTDOWN_SECONDS = float(QUICK["SHUTDOWN_TIMEOUT_SECONDS"])
USUAL = {  # seconds of an installation as it comes
    "ORPHAN_TIMEOUT_SECONDS": 60, "FENCE_KILL_SECONDS": 40, "CHILD_DEADLINE_SECONDS": 45,
}  # fmt: skip
LEASE_SECONDS = float(QUICK["ORPHAN_TIMEOUT_SECONDS"])


@pytest.fixture(scope="module")
def installation():
    with two_machines() as installation:
        yield installation


@pytest.fixture
def stack(installation):
    stack = installation.stack
    wait_until(lambda: len(stack.processes(WORKER)) == 2)
    wait_until(lambda: num_available(stack) >= 2)
    return stack


def num_available(stack):
    return [each["status"] for each in stack.look("workers") or []].count("AVAILABLE")


@pytest.fixture(scope="module")
def undisturbed(installation):
    operation_id = installation.stack.submit(**CONFIG)
    installation.stack.wait(operation_id, "COMPLETED")
    return operation_id


class Traced:
    """An operation that runs, and the file in which each of its steps leaves a line."""

    def __init__(self, stack, tmp_path, **config):
        self.stack, self.trace = stack, tmp_path / "trace"
        parameters = CONFIG["parameters"] | {"trace": str(self.trace)}
        self.id = stack.submit(**CONFIG | config | {"parameters": parameters})
        stack.wait_step(self.id, 60)

    def completed(self, undisturbed):
        operation = self.stack.wait(self.id, "COMPLETED")
        assert self.stack.artifacts(self.id) == self.stack.artifacts(undisturbed)
        assert self.stack.curve(self.id) == self.stack.curve(undisturbed)
        return operation

    @property
    def attempt(self):
        return (self.stack.look(f"operations/{self.id}") or {}).get("attempt")

    @property
    def num_steps(self):
        return len(self.trace.read_text().split())

    @property
    def events(self):
        return [each["what"] for each in self.stack.get(f"operations/{self.id}/events", limit=500)]

    @property
    def worker(self):
        return psutil.Process(self.stack.child_pid(self.id)).parents()[1]


@contextmanager
def frozen(*processes):
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def elapsed(seconds):
    """Return a condition that is true after N seconds: an outage has a length."""
    import time

    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def postgres(stack):
    servers = stack.processes("bin/postgres")
    first = min(servers, key=lambda process: (process.create_time(), process.pid))
    return [first, *first.children()]


@pytest.mark.parametrize("how", some_of(["kill", "freeze"], every=2))
def test_without_a_broker_operations_are_submitted_run_and_cancelled(
    stack, undisturbed, tmp_path, how
):
    operation = Traced(stack, tmp_path)
    (broker,) = stack.processes("redis-server")
    if how == "kill":
        broker.kill()
        other = stack.submit(**CONFIG)
    else:
        with frozen(broker):
            other = stack.submit(**CONFIG)
            stack.wait_step(other, 20)
            stack.post(f"operations/{other}/cancel")
            stack.wait(other, "CANCELLED")
            assert stack.post(f"operations/{other}/resume")["operation_id"] == other
    stack.wait(other, "COMPLETED")
    assert operation.completed(undisturbed)["attempt"] == 1


def test_a_database_that_restarts_costs_nothing(tmp_path):
    """A lease is as long as usual here: of a shortened one, a restart takes more than there is."""
    usual = {f"TRAINOPS_{name}": f"{seconds}" for name, seconds in USUAL.items()}
    with two_machines(**usual) as installation:
        stack = installation.stack
        wait_until(lambda: num_available(stack) >= 2)
        whole = stack.submit(**CONFIG)
        stack.wait(whole, "COMPLETED")
        operation = Traced(stack, tmp_path)
        postgres(stack)[0].send_signal(signal.SIGQUIT)
        done = operation.completed(whole)
    assert (done["attempt"], operation.num_steps) == (1, NUM_STEPS)


@pytest.mark.exhaustive
def test_a_database_that_is_back_later_than_a_short_lease_costs_no_step(
    stack, undisturbed, tmp_path
):
    """How long the restart takes decides whether another attempt finishes."""
    operation = Traced(stack, tmp_path)
    postgres(stack)[0].send_signal(signal.SIGQUIT)
    done = operation.completed(undisturbed)
    assert done["attempt"] in (1, 2)
    assert operation.num_steps == NUM_STEPS


@pytest.mark.exhaustive
def test_a_database_away_for_longer_than_a_lease_costs_no_step(stack, undisturbed, tmp_path):
    """What was staged in time is adopted: nothing is computed twice, nothing is failed."""
    operation = Traced(stack, tmp_path)
    with frozen(*postgres(stack)):
        answer = stack.client.get("operations")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "SERVICE_UNAVAILABLE")
        wait_until(elapsed(2 * LEASE_SECONDS))
    done = operation.completed(undisturbed)
    assert (done["attempt"], operation.num_steps) == (2, NUM_STEPS)


def test_a_full_disk_costs_a_checkpoint_only(stack, undisturbed, tmp_path, installation):
    if "disk" not in installation.has:
        pytest.skip("mounting a small disk needs root")
    operation = Traced(stack, tmp_path)
    ballast = stack.data_dir / "checkpoints" / "ballast"
    fill(ballast)
    wait_until(lambda: "SAVE_FAILED" in operation.events)
    ballast.unlink()
    done = operation.completed(undisturbed)
    assert (done["attempt"], operation.num_steps) == (1, NUM_STEPS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("hours", some_of([-1, 1], every=2))
def test_a_clock_that_jumps_changes_nothing(stack, undisturbed, tmp_path, installation, hours):
    operation = Traced(stack, tmp_path)
    (installation.hooks / "clock").write_text(str(hours * 3600.0))
    for worker in stack.processes(WORKER):
        worker.send_signal(inside.JUMP)
    done = operation.completed(undisturbed)
    assert (done["attempt"], operation.num_steps) == (1, NUM_STEPS)


@pytest.mark.exhaustive
def test_a_machine_that_slept_wakes_up_with_an_attempt_that_is_not_its_own(
    stack, undisturbed, tmp_path
):
    operation = Traced(stack, tmp_path)
    worker = operation.worker
    sleepers = [worker, *worker.children(recursive=True)]
    with frozen(*sleepers):
        stack.wait_step(operation.id, 61)
        wait_until(lambda: operation.attempt == 2)
        stack.wait(operation.id, "COMPLETED")
    done = operation.completed(undisturbed)
    assert done["attempt"] == 2
    wait_until(lambda: not [c for n in stack.processes(NURSERY) for c in n.children()])
    known = {each["worker_id"].split("@")[0] for each in stack.get("workers")}
    assert known  # it registered again


def test_a_worker_cut_off_from_the_database_gives_up_what_another_takes_over(
    stack, undisturbed, tmp_path, installation
):
    """Its attempt runs on the machine beyond the network, which keeps it from the database only."""
    network = installation.proxies["database"]
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        operation = Traced(stack, tmp_path / str(number))
        joined = psutil.Process(stack.joined[0].pid)
        if operation.worker in joined.children(recursive=True):
            break
        stack.post(f"operations/{operation.id}/kill")
        stack.wait(operation.id, "CANCELLED")
    child = psutil.Process(stack.child_pid(operation.id))
    network.become("stall")
    try:
        wait_until(lambda: has_ended(child))
        wait_until(lambda: operation.attempt == 2)
        operation.completed(undisturbed)
    finally:
        network.become("pass")
    assert operation.num_steps == NUM_STEPS
    assert "ADOPTED" in operation.events


def replace(stack, worker):
    before = {each.pid for each in stack.processes(WORKER)}
    worker.terminate()
    wait_until(lambda: not worker.is_running())
    wait_until(lambda: {each.pid for each in stack.processes(WORKER)} - before)


@pytest.mark.exhaustive
def test_a_worker_asked_to_stop_while_the_broker_is_frozen_is_gone_in_time(
    stack, undisturbed, tmp_path
):
    """Celery waits for its broker without limit; the watchdog does not."""
    operation = Traced(stack, tmp_path)
    worker = operation.worker
    with frozen(*stack.processes("redis-server")):
        worker.terminate()
        wait_until(lambda: not worker.is_running(), SHUTDOWN_SECONDS + 3)
    operation.completed(undisturbed)
    assert operation.num_steps == NUM_STEPS  # it was saved, and handed back


@pytest.mark.exhaustive
def test_a_worker_asked_to_stop_while_the_database_is_away_is_gone_in_time(
    stack, undisturbed, tmp_path
):
    operation = Traced(stack, tmp_path)
    worker = operation.worker
    with frozen(*postgres(stack)):
        worker.terminate()
        wait_until(lambda: not worker.is_running(), SHUTDOWN_SECONDS + 3)
    operation.completed(undisturbed)
    assert operation.num_steps == NUM_STEPS  # what it left was adopted


@pytest.mark.exhaustive
def test_a_new_version_is_deployed_under_load_and_nothing_is_lost(stack, undisturbed):
    """Every worker is stopped and replaced, one after the other, while operations run and wait."""
    ids = [stack.submit(**CONFIG) for _ in range(4)]
    stack.wait_step(ids[0], 20)
    for worker in stack.processes(WORKER):
        replace(stack, worker)
    for operation_id in ids:
        stack.wait(operation_id, "COMPLETED")
        assert stack.artifacts(operation_id) == stack.artifacts(undisturbed)
        attempts = stack.get(f"operations/{operation_id}/attempts")[::-1]
        assert {each["reason"] for each in attempts} <= {"", "SHUTDOWN"}
        ends = [each["to_step"] for each in attempts]
        assert [each["from_step"] for each in attempts] == [0, *ends[:-1]]  # no step was lost
