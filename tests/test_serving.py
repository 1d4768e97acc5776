"""What a worker serves, as its environment says it; a typo is refused before anything runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainops import serving
from trainops.celery import app, queue_of
from trainops.kind import KINDS

ROOT = Path(__file__).resolve().parents[1]


def read(**variables):
    return serving.read({f"TRAINOPS_WORKER_{name}": value for name, value in variables.items()})


def test_a_worker_serves_every_kind_and_no_label_unless_it_is_configured():
    assert read() == serving.Serving(KINDS.computed, (), 1)
    found = read(KINDS=" training, training", QUEUES="a100,,big.memory", SLOTS="4")
    assert found == serving.Serving(("training",), ("a100", "big.memory"), 4)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"KINDS": "trainig"}, r"KINDS holds 'trainig' \(did you mean training\?\); allowed:"),
        ({"QUEUES": "a100,two words"}, "QUEUES holds 'two words'; at most 64 letters, digits"),
        ({"QUEUES": "x" * 65}, "at most 64"),
        ({"SLOTS": "0"}, "SLOTS is '0'; it must be a whole number from 1 to 1024"),
        ({"SLOTS": "many"}, "SLOTS is 'many'"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(variables, message):
    with pytest.raises(ValueError, match=message):
        read(**variables)


def test_the_address_of_a_node_is_an_ip_address():
    assert serving.read({"TRAINOPS_NODE_ADDRESS": "10.0.0.7"}).node_address == "10.0.0.7"
    assert serving.read({}).node_address == ""
    message = "TRAINOPS_NODE_ADDRESS is 'here'; it must be an IP address of this machine, such as"
    with pytest.raises(ValueError, match=message):
        serving.read({"TRAINOPS_NODE_ADDRESS": "here"})


@pytest.mark.slow
def test_an_unknown_kind_is_refused_at_the_start():
    env = os.environ | {"TRAINOPS_WORKER_KINDS": "cooking"}
    command = [sys.executable, "-m", "celery", "--app", "trainops.celery", "worker"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "TRAINOPS_WORKER_KINDS holds 'cooking'; allowed: training" in done.stderr


def test_a_worker_consumes_the_queues_of_what_it_serves_and_the_one_of_all():
    assert set(app.amqp.queues.consume_from) == {"trainops", *map(queue_of, KINDS.computed)}
    assert queue_of("training", "a100") == "trainops.training.a100"


def test_sending_to_a_label_does_not_make_this_process_its_consumer():
    others = queue_of("training", "of-others")
    routed = app.amqp.router.route({"queue": others}, "trainops.wake")
    assert routed["queue"].name == others
    assert others not in app.amqp.queues.consume_from
