"""A backup under load is all that is left: on another host everything continues exactly."""

import shutil
import subprocess
from contextlib import ExitStack

import pytest

from tests.journey.stack import DATABASE_URL, PROGRAM, ROOT, _environment, running
from trainops.launch.servers import postgres_server

pytestmark = [pytest.mark.journey, pytest.mark.slow]

CONFIG = {
    "recipe": "scripted",
    "epochs": 120,
    "batch_size": 16,
    "checkpoint": {"every_steps": 20, "every_seconds": 0.01},
}
HANGS_AT = 200


def run(*arguments, **environment):
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        cwd=ROOT, env=_environment(environment), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_what_was_running_continues_exactly_from_a_backup_alone(engine, tmp_path):
    first, second, backups = tmp_path / "first", tmp_path / "second", tmp_path / "backups"
    with ExitStack() as servers:

        def database():
            return servers.enter_context(postgres_server()) if engine == "postgresql" else ""

        own, once = {DATABASE_URL: database()}, tmp_path / "once"
        parameters = {"what": "hang", "at": HANGS_AT, "once": str(once)}
        with running(first, **own) as stack:
            once.touch()  # a process that finds it does not hang
            undisturbed = stack.submit(**CONFIG, parameters=parameters)
            ended = stack.wait(undisturbed, "COMPLETED")
            expected = stack.artifacts(undisturbed), stack.curve(undisturbed)
            once.unlink()
            going = stack.submit(**CONFIG, parameters=parameters)
            for step in (20, HANGS_AT - 20):  # in between, checkpoints replace others
                stack.wait_step(going, step)
                code, output = run("backup", backups, TRAINOPS_DATA_DIR=str(first), **own)
                assert code == 0, output
            assert stack.get(f"operations/{going}")["state"] == "RUNNING"
        shutil.rmtree(first)

        own = {DATABASE_URL: database()}
        code, output = run("restore", backups, "--data-dir", second, **own)
        assert code == 0, output
        with running(second, **own) as stack:
            assert stack.get(f"operations/{undisturbed}")["result"] == ended["result"]
            assert stack.artifacts(undisturbed) == expected[0]
            done = stack.wait(going, "COMPLETED")
            assert done["attempt"] == 2
            assert (stack.artifacts(going), stack.curve(going)) == expected
            restored = [each["what"] for each in stack.get(f"operations/{going}/events")]
            assert "RESTORED" in restored
        code, output = run("restore", backups, "--data-dir", second, **own)
        assert code == 2 and ("has an installation" in output or "not empty" in output), output
