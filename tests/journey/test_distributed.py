"""A distributed operation on two machines, one of which is killed: the bits of an undisturbed run.

Machine "a" runs servers and the first client, machine "b" all others.
"""

import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass

import psutil
import psycopg
import pytest

from tests.journey.stack import Stack, joined, running
from tests.thinning import some_of
from tests.waiting import has_ended, wait_until
from trainops.launch.servers import postgres_server, redis_server

pytestmark = [pytest.mark.journey, pytest.mark.slow]

PRIVACY = {
    "none": {},
    "sample": {"noise_multiplier": 1.0},
    "user": {"user_noise_multiplier": 1.0},
    "hybrid": {"noise_multiplier": 1.0, "user_noise_multiplier": 2.0},
}
CONFIG = {
    "recipe": "crowd", "rounds": 3, "clients": 4, "local_epochs": 2, "batch_size": 6, "threads": 1,
    "optimizer": "adam", "server": {"strategy": "fedavgm"}, "parameters": {"batch_seconds": 0.1},
}  # fmt: skip
AWAY = {"placement": "distributed", "labels": {"*": "b", "0": "a"}}
NOWHERE = "nowhere"  # a label that no worker has


@dataclass
class WorkerRuntime:
    stack: Stack
    database: psycopg.Connection

    def begin(self, mode, **more):
        """Submit one whose noise is that of any other of these; a worker may take it then."""
        config = CONFIG | {"privacy": {"mode": mode, **PRIVACY[mode]}} | more
        asked = {"kind": "federated", "config": config, "queue": NOWHERE}
        operation_id = self.stack.post("operations", asked)["id"]
        account = "operation_id, secret, ancestors, num_entries, head"
        self.database.execute(
            f"INSERT INTO ledger_ledgeraccount ({account}) "  # noqa: S608
            "VALUES (%s, %s, '[]', 0, '')",
            [operation_id, "5e" * 32],
        )
        self.database.execute(
            "UPDATE operations_operation SET queue = 'a' WHERE id = %s", [operation_id]
        )
        return operation_id

    def rows(self, query, *values):
        return self.database.execute(query, values).fetchall()

    def ledger(self, operation_id):
        return self.rows(
            'SELECT step, identity, "values" FROM ledger_ledgerentry WHERE operation_id = %s '
            "ORDER BY step, identity",
            operation_id,
        )

    def parts(self, operation_id):
        """Return id, round, client, state, step, worker, attempt, saved steps of each client."""
        return self.rows(
            'SELECT o.id, p."group", p."index", o.state, o.step, o.worker_id, o.attempt, (SELECT '
            "max(step) FROM checkpoints_checkpoint c WHERE c.operation_id = o.id) FROM "
            "operations_subtask p JOIN operations_operation o ON o.id = p.operation_id "
            "WHERE p.parent_id = %s",
            operation_id,
        )

    def restored(self, operation_id, *, attempt):
        """Return where an attempt began, once it has."""
        query = "SELECT from_step FROM operations_attempt WHERE operation_id = %s AND number = %s"
        return self.rows(f"{query} AND receipt IS NOT NULL", operation_id, attempt)

    def worker_of(self, operation_id):
        return psutil.Process(self.stack.child_pid(operation_id)).parents()[1]

    def what_it_came_to(self, operation_id):
        done = self.stack.wait(operation_id, "COMPLETED")
        return (
            self.stack.artifacts(operation_id), self.stack.curve(operation_id),
            self.ledger(operation_id), done["result"],
        )  # fmt: skip


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    directory = tmp_path_factory.mktemp("distributed")
    with ExitStack() as up:
        urls = {
            "TRAINOPS_DATABASE_URL": up.enter_context(postgres_server()),
            "TRAINOPS_BROKER_URL": up.enter_context(redis_server()),
            "TRAINOPS_WORKER_SLOTS": "2",
        }
        stack = up.enter_context(running(directory / "var", TRAINOPS_WORKER_QUEUES="a", **urls))
        up.enter_context(joined(stack, TRAINOPS_WORKER_QUEUES="b", **urls))
        url = urls["TRAINOPS_DATABASE_URL"]
        yield WorkerRuntime(stack, up.enter_context(psycopg.connect(url, autocommit=True)))


@pytest.fixture(scope="module")
def undisturbed(runtime):
    """What a run in one process comes to, by the mode of privacy; each is run once."""
    known = {}

    def found(mode):
        if mode not in known:
            operation_id = runtime.begin(mode)
            known[mode] = runtime.what_it_came_to(operation_id)
        return known[mode]

    return found


def in_the_middle(runtime, operation_id, point):
    """Wait until a client is in an epoch, and what it did before is saved; return its row."""
    number, client, epoch = point

    def there():
        for row in runtime.parts(operation_id):
            _, *place, state, step, _, _, saved = row
            if (*place, state, step, saved or 0) == (number, client, "RUNNING", epoch, epoch):
                return row
        return None

    return wait_until(there)


def kill_in(runtime, operation_id, point):
    """Kill the machine that trains this client epoch; return its client's operation."""
    part, *_ = in_the_middle(runtime, operation_id, point)
    child = psutil.Process(runtime.stack.child_pid(part))
    child.parents()[1].send_signal(signal.SIGKILL)  # child, forkserver, worker
    wait_until(lambda: has_ended(child))
    return part


def require_kill_changes_nothing(runtime, undisturbed, mode, point):
    operation_id = runtime.begin(mode, **AWAY)
    part = kill_in(runtime, operation_id, point)
    began = wait_until(lambda: runtime.restored(part, attempt=2))[0][0]
    assert runtime.what_it_came_to(operation_id) == undisturbed(mode)
    assert began == point[2], "what was saved was not trained again"


KILLS = {"none": (1, 1, 0), "sample": (2, 2, 1), "user": (3, 3, 0), "hybrid": (1, 3, 1)}


@pytest.mark.parametrize("mode", some_of([*PRIVACY], every=len(PRIVACY)))
def test_with_a_machine_killed_in_a_client_epoch_it_ends_exactly(runtime, undisturbed, mode):
    require_kill_changes_nothing(runtime, undisturbed, mode, KILLS[mode])


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", PRIVACY)
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("client", [0, 1, 2, 3])
@pytest.mark.parametrize("epoch", [0, 1])
def test_killed_at_every_client_epoch_it_ends_exactly(
    runtime, undisturbed, mode, number, client, epoch
):
    require_kill_changes_nothing(runtime, undisturbed, mode, (number, client, epoch))


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", some_of(["hybrid", "none"], every=2))
def test_with_the_servers_machine_killed_its_clients_go_on(runtime, undisturbed, mode):
    operation_id = runtime.begin(mode, **AWAY)
    in_the_middle(runtime, operation_id, (2, 2, 0))
    before = {row[0]: row[2] for row in runtime.parts(operation_id)}
    server = runtime.worker_of(operation_id)
    server.send_signal(signal.SIGKILL)
    wait_until(lambda: has_ended(server))
    attempts = {}

    def is_next_round():
        there = {row[0]: row for row in runtime.parts(operation_id) if row[0] in before}
        attempts.update({row[2]: row[6] for row in there.values()})
        return not there

    wait_until(is_next_round)
    assert set(attempts) == {0, 1, 2, 3}, "nobody was sent anew"
    assert all(attempts[client] == 1 for client in (1, 2, 3)), "the other machine noticed nothing"
    assert runtime.what_it_came_to(operation_id) == undisturbed(mode)


@pytest.mark.exhaustive
def test_labels_lead_each_client_to_its_machine(runtime):
    operation_id = runtime.begin("none", **AWAY, rounds=1)
    seen = {}

    def all_ran():
        seen.update({row[2]: row[5] for row in runtime.parts(operation_id) if row[5]})
        return len(seen) == 4

    wait_until(all_ran)
    server = runtime.stack.get(f"operations/{operation_id}")["worker_id"]
    assert seen[0] == server and {seen[1], seen[2], seen[3]}.isdisjoint({server})
    runtime.stack.wait(operation_id, "COMPLETED")
    wait_until(lambda: not runtime.parts(operation_id))
    assert not runtime.rows("SELECT id FROM operations_operation WHERE id LIKE 'op_subtask%%'")


@pytest.mark.exhaustive
def test_a_cancel_reaches_clients_that_run(runtime, undisturbed):
    operation_id = runtime.begin("sample", **AWAY)
    in_the_middle(runtime, operation_id, (1, 2, 1))
    asked_at = time.monotonic()
    runtime.stack.post(f"operations/{operation_id}/cancel")
    runtime.stack.wait(operation_id, "CANCELLED")
    wait_until(
        lambda: {row[3] for row in runtime.parts(operation_id)} <= {"CANCELLED", "COMPLETED"}
    )
    assert time.monotonic() - asked_at < 60
    runtime.stack.post(f"operations/{operation_id}/resume")
    assert runtime.what_it_came_to(operation_id) == undisturbed("sample")
