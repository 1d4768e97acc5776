"""A backup under load is all that is left: on another host everything continues exactly."""

import shutil
import subprocess
from contextlib import ExitStack

import boto3
import pytest

from tests.checkpoints.conftest import moto  # noqa: F401 - a fixture
from tests.journey.stack import DATABASE_URL, PROGRAM, ROOT, _environment, running
from tests.thinning import some_of
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


@pytest.fixture
def bucket(moto, monkeypatch):  # noqa: F811 - the fixture
    """The URL of an empty bucket on a server of S3."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    address = f"http://127.0.0.1:{moto}"
    boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(Bucket="drill")
    return f"s3://drill/of/journeys?endpoint_url={address}&region_name=us-east-1"


@pytest.mark.parametrize("engine", some_of(["sqlite", "postgresql"], every=2))
def test_what_was_running_continues_exactly_from_a_backup_alone(engine, tmp_path, request):
    """The backup of SQLite is in a bucket, encrypted; that of PostgreSQL in a directory."""
    first, second, key = tmp_path / "first", tmp_path / "second", tmp_path / "key"
    backups = [tmp_path / "backups"]
    if engine == "sqlite":
        key.write_text("0f" * 32)
        backups = [request.getfixturevalue("bucket"), "--key", key]
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
                code, output = run("backup", *backups, TRAINOPS_DATA_DIR=str(first), **own)
                assert code == 0, output
            assert stack.get(f"operations/{going}")["state"] == "RUNNING"
        code, output = run("backup", *backups, "--verify")
        assert code == 0 and "intact" in output, output
        shutil.rmtree(first)

        own = {DATABASE_URL: database()}
        code, output = run("restore", *backups, "--data-dir", second, **own)
        assert code == 0, output
        with running(second, **own) as stack:
            assert stack.get(f"operations/{undisturbed}")["result"] == ended["result"]
            assert stack.artifacts(undisturbed) == expected[0]
            done = stack.wait(going, "COMPLETED")
            assert done["attempt"] == 2
            assert (stack.artifacts(going), stack.curve(going)) == expected
            restored = [each["what"] for each in stack.get(f"operations/{going}/events")]
            assert "RESTORED" in restored
        code, output = run("restore", *backups, "--data-dir", second, **own)
        assert code == 2 and ("has an installation" in output or "not empty" in output), output


@pytest.mark.exhaustive
def test_checkpoints_that_survived_the_database_are_offered_and_continue_exactly(tmp_path):
    """Of what ran after the backup, only the points before the recovered checkpoint are lost."""
    first, second, kept = tmp_path / "first", tmp_path / "second", tmp_path / "kept"
    own = {"TRAINOPS_CHECKPOINT_STORAGE": str(kept)}
    parameters = {"what": "hang", "at": HANGS_AT, "once": str(tmp_path / "once")}
    with running(first, **own) as stack:
        (tmp_path / "once").touch()
        undisturbed = stack.submit(**CONFIG, parameters=parameters)
        stack.wait(undisturbed, "COMPLETED")
        expected = stack.artifacts(undisturbed), stack.curve(undisturbed)
        (tmp_path / "once").unlink()
        operation = stack.submit(**CONFIG, parameters=parameters)
        stack.wait_step(operation, 20)
        stack.post(f"operations/{operation}/cancel")
        old = stack.wait(operation, "CANCELLED")["step"]
        code, output = run("backup", tmp_path / "backups", TRAINOPS_DATA_DIR=str(first), **own)
        assert code == 0, output
        stack.post(f"operations/{operation}/resume")
        stack.wait_step(operation, HANGS_AT - 20)
    shutil.rmtree(first)

    code, output = run("restore", tmp_path / "backups", "--data-dir", second, **own)
    assert code == 0, output
    with running(second, **own) as stack:
        assert stack.get(f"operations/{operation}")["step"] == old
        newest = stack.get(f"operations/{operation}/recovery")["unrecorded"][0]["step"]
        assert newest > old
        stack.post(f"operations/{operation}/recovery")
        stack.post(f"operations/{operation}/resume")
        done = stack.wait(operation, "COMPLETED")
        assert done["attempt"] == 3
        assert stack.artifacts(operation) == expected[0]
        points, expected_points = set(stack.curve(operation)), set(expected[1])
        assert points <= expected_points
        assert all(old <= step <= newest for _, step, _ in expected_points - points)
