"""The whole installation as a user has it: `python3 -m trainops up`, spoken to over HTTP."""

import json
import logging
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.environment import DATA_DIR
from tests.waiting import wait_until
from trainops.media.names import SYSTEM

logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for every look is no help
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "trainops")
MANAGE = (sys.executable, "manage.py")
DATABASE, DATABASE_URL = "trainops.sqlite3", "TRAINOPS_DATABASE_URL"
QUICK = {  # the protocol's timings, shortened in proportion
    "HEALTH_CHECK_INTERVAL_SECONDS": "0.5",
    "HEALTH_CHECK_TIMEOUT_SECONDS": "5",
    "ORPHAN_TIMEOUT_SECONDS": "15",  # a busy machine takes no lease away without a fault
    "ORPHAN_CHECK_INTERVAL_SECONDS": "1",
    "FENCE_KILL_SECONDS": "10",
    "CHILD_DEADLINE_SECONDS": "12",
    "CANCEL_POLL_SECONDS": "0.3",
    "RESTART_DELAY_SECONDS": "0.5",
    "SHUTDOWN_TIMEOUT_SECONDS": "8",
    "CHECKPOINT_RESERVE_BYTES": "0",  # some disks here are small, to be filled
}


class Stack:
    def __init__(self, data_dir: Path, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.data_dir, self.port, self.process = data_dir, port, process
        self.joined: list[subprocess.Popen[bytes]] = []  # further machines
        self.url = f"http://127.0.0.1:{port}"
        self.token = ""
        self.client = httpx.Client(base_url=f"{self.url}/api/v1/", timeout=600)

    def sign_in(self) -> None:
        access = self.data_dir / "cli.json"

        def has_come_up() -> bool:
            assert self.process.poll() is None, "it has ended"
            return access.exists() and self._answers()

        wait_until(has_come_up)
        self.token = json.loads(access.read_text())["token"]
        self.client.headers["Authorization"] = f"Bearer {self.token}"

    def _answers(self) -> bool:
        try:
            return self.client.get("health").status_code == 200
        except httpx.HTTPError:
            return False

    def get(self, path: str, **params: Any) -> Any:
        return self._data(self.client.get(path, params=params))

    def look(self, path: str) -> Any:
        """Return what `get` does, or None while web or database are away."""
        try:
            response = self.client.get(path)
        except httpx.TransportError:
            return None
        if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return None
        return self._data(response)

    def post(self, path: str, body: Any = None) -> Any:
        return self._data(self.client.post(path, json=body or {}))

    def delete(self, path: str) -> Any:
        return self._data(self.client.delete(path))

    def _data(self, response: httpx.Response) -> Any:
        assert response.is_success, response.text
        return response.json()["data"]

    def submit(self, *, kind: str = "training", priority: int = 0, **config: Any) -> str:
        asked = {"kind": kind, "config": config, "priority": priority}
        answer = self.post("operations", asked)
        return str(answer["id"])

    def wait(self, operation_id: str, *states: str, seconds: float = 300) -> Any:
        def reached() -> Any:
            operation = self.look(f"operations/{operation_id}")
            return operation if operation and operation["state"] in states else None

        try:
            return wait_until(reached, seconds)
        except AssertionError:
            raise AssertionError(self._story(operation_id)) from None

    def _story(self, operation_id: str) -> str:
        """Return all that is known of an operation that did not do what it should."""
        parts = ("", "/events", "/attempts", "/logs")
        return "\n".join(self.client.get(f"operations/{operation_id}{part}").text for part in parts)

    def wait_step(self, operation_id: str, step: int) -> Any:
        def reached() -> Any:
            operation = self.look(f"operations/{operation_id}")
            return operation if operation and operation["step"] >= step else None

        return wait_until(reached)

    def child_pid(self, operation_id: str) -> int:
        def born() -> Any:
            attempts = self.look(f"operations/{operation_id}/attempts")
            return attempts[0]["pid"] if attempts and attempts[0]["ended_at"] is None else None

        return int(wait_until(born))

    def freeze(self, process: psutil.Process) -> None:
        """Suspend a process where it does not hold the one lock that a file database has.

        Frozen with it, nobody could write until it wakes: nobody could take anything over either.
        """
        while True:
            process.suspend()
            wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
            if self._can_be_written():
                return
            process.resume()
            wait_until(self._can_be_written)  # it ends its transaction, which takes CPU time

    def _can_be_written(self) -> bool:
        path = self.data_dir / DATABASE
        if not path.exists():
            return True  # PostgreSQL ends the transaction of who is frozen
        database = sqlite3.connect(path, timeout=2, isolation_level=None)
        try:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            database.close()
        return True

    def artifacts(self, operation_id: str) -> dict[str, str]:
        """Return the digest of every file of the result."""
        files = self.get(f"operations/{operation_id}/artifacts")
        return {file["name"]: file["blake3"] for file in files}

    def curve(self, operation_id: str) -> list[tuple[str, int, float]]:
        """Return the points that a resume reproduces, without those measured by the clock."""
        series = self.get(f"operations/{operation_id}/metrics", max_points=100_000)["series"]
        return sorted(
            (each["name"], step, value)
            for each in series
            if each["retired_by"] is None and not each["name"].startswith(SYSTEM)
            for step, value in zip(each["steps"], each["values"], strict=True)
        )

    def processes(self, word: str) -> list[psutil.Process]:
        """Return the living processes of this stack whose command line holds the word."""
        family = [
            each
            for process in (self.process, *self.joined)
            for each in psutil.Process(process.pid).children(recursive=True)
        ]
        return [each for each in family if word in " ".join(_command(each))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _family(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []  # the test ended it


@cache
def migrated() -> Path:
    """Return the file of an empty database with all migrations: 77 take longer than a start."""
    directory = Path(tempfile.mkdtemp(prefix="migrated-", dir=DATA_DIR))
    env = _environment({"TRAINOPS_DATA_DIR": str(directory), DATABASE_URL: ""})
    subprocess.run([*MANAGE, "migrate", "--verbosity", "0"], cwd=ROOT, env=env, check=True)
    (directory / DATABASE).chmod(0o600)
    return directory / DATABASE


def _environment(own: dict[str, str]) -> dict[str, str]:
    env = os.environ | {f"TRAINOPS_{name}": value for name, value in QUICK.items()} | own
    env.pop("DJANGO_SETTINGS_MODULE", None)
    return env


@contextmanager
def running(
    data_dir: Path,
    *options: str,
    workers: int = 1,
    program: Sequence[str] = PROGRAM,
    cwd: Path = ROOT,
    **environment: str,
) -> Iterator[Stack]:
    """Yield a stack that has come up; on the way out it is stopped, and nothing is left of it.

    A new one on SQLite begins with a copy of a migrated database. The installed program, and
    stacks on PostgreSQL, migrate by themselves.
    """
    database = data_dir / DATABASE
    is_elsewhere = "--postgres" in options or _environment(environment).get(DATABASE_URL)
    if program == PROGRAM and cwd == ROOT and not is_elsewhere and not database.exists():
        data_dir.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(migrated(), database)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--port", str(port), "--workers", str(workers), *options]
    with _up(data_dir, "up.log", arguments, environment, program, cwd) as process:
        stack = Stack(data_dir, port, process)
        try:
            stack.sign_in()
            yield stack
        finally:
            stack.client.close()


@contextmanager
def joined(
    stack: Stack,
    *options: str,
    workers: int = 1,
    program: Sequence[str] = PROGRAM,
    **environment: str,
) -> "Iterator[subprocess.Popen[bytes]]":
    """Workers on a further machine, for the length of the block."""
    arguments = ["--only-workers", "--workers", str(workers), *options]
    log_name = f"joined-{len(stack.joined) + 1}.log"
    with _up(stack.data_dir, log_name, arguments, environment, program) as process:
        stack.joined.append(process)
        yield process
        stack.joined.remove(process)


@contextmanager
def _up(
    data_dir: Path,
    log_name: str,
    arguments: list[str],
    environment: dict[str, str],
    program: Sequence[str] = PROGRAM,
    cwd: Path = ROOT,
) -> "Iterator[subprocess.Popen[bytes]]":
    """One `up`, stopped in order after the block; nothing of it is left."""
    command = [*program, "up", "--no-install"]
    command += ["--data-dir", str(data_dir), *arguments]
    path = data_dir.parent / log_name
    with path.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=cwd, env=_environment(environment), stdout=log, stderr=log
        )
    try:
        yield process
    except BaseException:
        sys.stderr.write(path.read_text()[-4000:])
        raise
    finally:
        family = _family(process)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        finally:
            _, left = psutil.wait_procs(family, timeout=10)
            for each in left:
                each.kill()
        assert not left, f"left over: {left}"
