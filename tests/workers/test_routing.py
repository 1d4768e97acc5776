"""Real workers on a real Redis: a message reaches a worker that can use it, and no other."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
import redis

from tests.journey.stack import QUICK, ROOT, running
from tests.waiting import wait_until
from trainops.launch.servers import redis_server

pytestmark = [pytest.mark.journey, pytest.mark.slow]

CONFIG = {"recipe": "scripted", "epochs": 1, "batch_size": 16}
# Only a message wakes such a worker in time: it looks by itself every two minutes.
SELDOM = {"TRAINOPS_CANCEL_POLL_SECONDS": "120", "TRAINOPS_ORPHAN_CHECK_INTERVAL_SECONDS": "120"}


def submit(stack, queue=""):
    body = {"kind": "training", "config": CONFIG, "queue": queue}
    return stack.post("operations", body)["id"]


def until_it_listens(stack):
    """What came while the worker warmed up, it looks for by itself; then messages reach it."""
    stack.wait(submit(stack), "COMPLETED")


@contextmanager
def another_worker(stack, **environment):
    env = os.environ | {f"TRAINOPS_{name}": value for name, value in QUICK.items()} | environment
    env |= {"TRAINOPS_DATA_DIR": str(stack.data_dir)}
    command = [sys.executable, "-m", "celery", "--app", "trainops.celery", "worker"]
    worker = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(30)


def test_messages_lead_each_operation_to_a_worker_that_has_its_label(tmp_path):
    with redis_server() as url:
        broker = {"TRAINOPS_BROKER_URL": url}
        labels = {"TRAINOPS_WORKER_QUEUES": "a100"}
        with running(tmp_path / "var", **broker, **labels, **SELDOM) as stack:
            until_it_listens(stack)
            stack.wait(submit(stack, "a100"), "COMPLETED")

            operation_id = submit(stack, "big")
            queue = redis.Redis.from_url(url)
            wait_until(lambda: queue.llen("trainops.training.big") == 1)
            waiting = stack.get(f"operations/{operation_id}")["waiting_for"]
            assert waiting["code"] == "NO_WORKER_WITH_LABEL"
            assert "the label big; available labels: a100" in waiting["message"]

            with another_worker(stack, **broker, TRAINOPS_WORKER_QUEUES="big"):
                ended = stack.wait(operation_id, "COMPLETED")
            assert (ended["attempt"], ended["waiting_for"]) == (1, None)
            assert queue.llen("trainops.training.big") == 0
            queue.close()
