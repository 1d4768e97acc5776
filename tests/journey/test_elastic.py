"""Workers that are there for a while: their time ends, another continues what they ran."""

import os
import signal
import subprocess
import time
from datetime import datetime

import psutil
import pytest

from tests.journey.stack import DATABASE, PROGRAM, QUICK, ROOT, joined, running
from tests.waiting import wait_until
from trainops.launch import servers

pytestmark = [pytest.mark.faults, pytest.mark.journey, pytest.mark.slow]
CONFIG = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.1},
    "epochs": 80,
    "batch_size": 16,
    "checkpoint": {"every_steps": 50, "every_seconds": 2},
}


@pytest.fixture
def stack(tmp_path):
    began_at = time.monotonic()
    with (
        servers.redis_server(source="binaries") as broker,
        running(tmp_path / "var", workers=0, TRAINOPS_BROKER_URL=broker) as stack,
    ):
        stack.stores = {
            "TRAINOPS_BROKER_URL": broker,
            "TRAINOPS_DATABASE_URL": f"sqlite:///{stack.data_dir / DATABASE}",
            "TRAINOPS_WORKER_END_MARGIN_SECONDS": "1",
        }
        # Of a worker, which starts as slowly as the machine is; 8 of them are for saving.
        stack.life_seconds = min(300, round(35 + 2 * (time.monotonic() - began_at)))
        yield stack


def ends(process, seconds):
    """Wait for the end of `up`; nothing of it is left."""
    family = psutil.Process(process.pid).children(recursive=True)
    code = process.wait(seconds)
    _, left = psutil.wait_procs(family, timeout=30)
    assert not left
    return code


def is_handed_back(stack, operation_id):
    """Return the attempt that its worker saved and handed back."""
    stack.wait(operation_id, "RESUMING")
    (attempt,) = stack.get(f"operations/{operation_id}/attempts")
    assert (attempt["outcome"], attempt["reason"]) == ("preempted", "SHUTDOWN")
    assert stack.get("workers") == []  # it has left; it was not lost
    return attempt


def are_equal(stack, interrupted, undisturbed):
    assert stack.artifacts(interrupted) == stack.artifacts(undisturbed)
    assert stack.curve(interrupted) == stack.curve(undisturbed)


@pytest.mark.exhaustive
def test_another_worker_continues_what_a_worker_saved_before_its_end(stack):
    began_at = time.time()
    with joined(stack, "--until", f"{stack.life_seconds}s", **stack.stores) as process:
        (worker,) = wait_until(lambda: stack.get("workers"))
        ends_at = datetime.fromisoformat(worker["ends_at"]).timestamp()
        assert began_at <= ends_at - stack.life_seconds <= time.time()
        assert worker["idle_exit_seconds"] is None
        wait_until(lambda: time.time() > ends_at - 8 - 20, 400)  # 20 s before it begins to save
        interrupted = stack.submit(seed=5, **CONFIG)
        stack.wait_step(interrupted, 20)
        assert ends(process, 300) == 0
    attempt = is_handed_back(stack, interrupted)
    assert datetime.fromisoformat(attempt["ended_at"]).timestamp() < ends_at

    with joined(stack, "--idle-exit", "3s", **stack.stores) as process:
        undisturbed = stack.submit(seed=5, **CONFIG)
        for each in (interrupted, undisturbed):
            stack.wait(each, "COMPLETED")
        assert ends(process, 300) == 0
    second = stack.get(f"operations/{interrupted}/attempts")[0]
    assert second["from_step"] == attempt["to_step"] >= 20
    are_equal(stack, interrupted, undisturbed)


@pytest.fixture
def batch(stack, tmp_path):
    """The script of `install-service slurm`, with a scheduler that only notes what is asked."""
    environment = os.environ | {f"TRAINOPS_{name}": value for name, value in QUICK.items()}
    environment |= stack.stores | {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    script, folder, asked = tmp_path / "worker.sbatch", tmp_path / "bin", tmp_path / "asked"
    command = [*PROGRAM, "install-service", "slurm", "--output", str(script), "--idle-exit", "3s"]
    command += ["--data-dir", str(stack.data_dir)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    folder.mkdir()
    for name, body in {"srun": 'exec "$@"', "scontrol": f'echo "$@" >> {asked}'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)

    def begin():
        path = f"{folder}:{environment['PATH']}"
        env = {"PATH": path, "HOME": environment["HOME"], "SLURM_JOB_ID": "17"}
        process = subprocess.Popen(["bash", str(script)], env=env, cwd=tmp_path)
        stack.joined.append(process)
        return process

    begin.asked = asked
    return begin


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "number", [signal.SIGUSR1, signal.SIGTERM], ids=["the time limit", "a preemption"]
)
def test_a_batch_job_hands_back_and_is_requeued(stack, batch, number):
    interrupted = stack.submit(seed=5, **CONFIG)
    process = batch()
    stack.wait_step(interrupted, 60)
    process.send_signal(number)
    assert ends(process, 300) == 0
    attempt = is_handed_back(stack, interrupted)
    assert batch.asked.read_text() == "requeue 17\n"

    undisturbed = stack.submit(seed=5, **CONFIG)
    process = batch()  # as the scheduler starts it again
    for each in (interrupted, undisturbed):
        stack.wait(each, "COMPLETED")
    assert ends(process, 300) == 0
    assert batch.asked.read_text() == "requeue 17\n"  # no more work: no more jobs
    assert stack.get(f"operations/{interrupted}/attempts")[0]["from_step"] == attempt["to_step"]
    are_equal(stack, interrupted, undisturbed)
