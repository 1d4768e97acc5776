"""A distributed round where checkpoints lie in a bucket: each machine begins with an empty disk."""

import os
import signal

import pytest

from tests.operations.attempts import run
from tests.operations.distributed import Round, run_distributed, submit
from tests.operations.test_clients import require_same
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("mode", ["none", "hybrid"])
def test_servers_and_clients_hand_everything_to_each_other_through_the_bucket(
    runtime, store, machine, mode
):
    whole = run(runtime, submit(mode=mode, placement="in_process"))
    going = Round(runtime, submit(mode=mode))
    going.sent(3)
    assert going.last_first()
    os.kill(going.server.pid, signal.SIGKILL)
    assert going.server.ended().state == "RESUMING"
    machine("second")
    assert going.last_first(), "a client begins with what its server saved elsewhere"
    machine("third")
    going.operation.row.update(not_before=None)
    require_same(run_distributed(runtime, going.operation), whole)
    wait_until(lambda: not [name for name in store.names() if "op_subtask" in name])
