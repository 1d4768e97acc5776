import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from typer.testing import CliRunner

from trainops.cli.app import build
from trainops.http.models import Token
from trainops.http.roles import Role, ensure_roles

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


@pytest.fixture
def ana(transactional_db):
    """An operator."""
    ensure_roles()  # the tables were emptied after the last test
    user = User.objects.create_user("ana", password="correct horse")
    user.groups.add(Group.objects.get(name=Role.OPERATOR))
    return user


@pytest.fixture
def environment(live_server, ana, settings, tmp_path):
    """What a person's shell knows of the server."""
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"
    _, token = Token.objects.create(ana)
    return {
        "TRAINOPS_URL": live_server.url,
        "TRAINOPS_TOKEN": token,
        "TRAINOPS_DATA_DIR": str(tmp_path / "var"),
    }


@pytest.fixture
def cli(environment, monkeypatch):
    """Run a command in this process, against a real server."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def cli(*arguments: object, **keywords: Any) -> Result:
        ran = CliRunner().invoke(build(), [str(each) for each in arguments], **keywords)
        if ran.exception and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return Result(ran.exit_code, ran.stdout, ran.stderr)

    return cli


@pytest.fixture
def start(environment):
    """Start a command as a process of its own."""
    started = []

    def start(*arguments: object) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", "from trainops.cli import main; main()", *map(str, arguments)],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def wish(tmp_path):
    """A file that `run` takes."""
    path = tmp_path / "wish.yaml"
    path.write_text("kind: training\nname: A wish\nconfig:\n  recipe: digits\n  epochs: 2\n")
    return path
