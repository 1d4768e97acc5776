"""A Redis and a PostgreSQL for the length of a `with` block: the tests run on real servers.

Each comes from the first source that works: the variable TRAINOPS_TEST_…, the local default port,
binaries of this machine, the wheels of the test extra.
"""

import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql

from trainops.launch import embedded
from trainops.launch.identity import identity, unprivileged_user
from trainops.launch.refusal import CannotStart

Source = Literal["any", "binaries", "wheels"]
START_SECONDS = 30.0
LOCAL_POSTGRES = "postgresql://postgres@127.0.0.1:5432/postgres"
LOCAL_REDIS = ("127.0.0.1", 6379)
REDIS_DATABASES = range(15, 0, -1)  # the last first: 0 is the one that others use


@contextmanager
def redis_server(directory: Path | None = None, source: Source = "any") -> Iterator[str]:
    """Yield the broker URL of an empty Redis. One of our own ends with the block."""
    if source == "any" and (given := os.environ.get("TRAINOPS_TEST_BROKER_URL")):
        yield given
        return
    if source == "any" and (database := _free_local_redis()) is not None:
        try:
            yield f"redis://{LOCAL_REDIS[0]}:{LOCAL_REDIS[1]}/{database}"
        finally:
            _ask_local_redis(database, b"FLUSHDB")  # it was empty when we took it
        return
    with ExitStack() as stack:
        home = _home(directory, stack)
        path = embedded.socket_directory(home) / "redis.sock"
        binary = embedded.redis_binary(wheels_only=source == "wheels")
        command = embedded.redis_command(binary, home, path)
        with _process(command, home / "redis.log", lambda: embedded.redis_answers(path)):
            yield embedded.redis_url(path)


@contextmanager
def postgres_server(directory: Path | None = None, source: Source = "any") -> Iterator[str]:
    """Yield the URL of a PostgreSQL database of the caller's own; it is gone after the block.

    A given TRAINOPS_TEST_DATABASE_URL is yielded as it is: it names the caller's own.
    """
    if source == "any" and (given := os.environ.get("TRAINOPS_TEST_DATABASE_URL")):
        yield given
    elif source == "any" and _answers(LOCAL_POSTGRES):
        with _new_database(LOCAL_POSTGRES) as url:
            yield url
    else:
        with _own_postgres(directory, source) as url, _new_database(url) as own:
            yield own


@contextmanager
def _own_postgres(directory: Path | None, source: Source) -> Iterator[str]:
    user = unprivileged_user()
    with ExitStack() as stack:
        home = embedded.socket_directory(_home(directory, stack))
        if user and not embedded.is_reachable(home, user):
            # Below a closed directory (pytest's temporary ones) only root could use it.
            home = _home(None, stack)
        found = embedded.postgres_binaries(wheels_only=source == "wheels")
        binaries, cluster = embedded.binaries_for(user, found), home / "postgres"
        embedded.postgres_initialise(binaries, cluster, user, durable=False)
        command = embedded.postgres_command(binaries, cluster, durable=False)
        url = embedded.postgres_url(cluster)
        stack.enter_context(
            _process(command, home / "postgres.log", lambda: _answers(url), user=user)
        )
        yield url


@contextmanager
def postgres_of(data_dir: Path) -> Iterator[str]:
    """Yield the URL of the database that `up --postgres` uses with a data directory."""
    user = unprivileged_user()
    if user:
        data_dir.chmod(0o711)  # it may pass, and cannot list what is there
    binaries = embedded.binaries_for(user, embedded.postgres_binaries())
    cluster = data_dir / "postgres"
    embedded.postgres_initialise(binaries, cluster, user)
    command, url = embedded.postgres_command(binaries, cluster), embedded.postgres_url(cluster)
    with _process(command, data_dir / "postgres.log", lambda: _answers(url), user=user):
        yield url


@contextmanager
def _new_database(url: str) -> Iterator[str]:
    """A database with a name of its own on that server, dropped after."""
    name = f"trainops_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield f"{url.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(url, autocommit=True) as server:
            dropping = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            server.execute(dropping.format(sql.Identifier(name)))


def _answers(url: str) -> bool:
    with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=2):
        return True
    return False


def _free_local_redis() -> int | None:
    """The number of an empty database of the local Redis, if there is such a server."""
    with suppress(OSError):
        for number in REDIS_DATABASES:
            if _ask_local_redis(number, b"DBSIZE") == b":0":
                return number
    return None


def _ask_local_redis(database: int, command: bytes) -> bytes:
    """The first line of the answer. Raises OSError where there is no server."""
    with socket.create_connection(LOCAL_REDIS, timeout=1) as connection:
        connection.sendall(b"SELECT %d\r\n%s\r\n" % (database, command))
        with connection.makefile("rb") as answers:
            return [answers.readline().strip() for _ in range(2)][1]


def _home(directory: Path | None, stack: ExitStack) -> Path:
    if directory is None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainops-")))
        directory.chmod(0o711)  # PostgreSQL's user must be able to pass
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def _process(
    command: list[str], log: Path, is_ready: Callable[[], bool], *, user: str | None = None
) -> Iterator[None]:
    """A server that answers, ended after the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd="/", start_new_session=True, **identity(user)
        )
    try:
        _await(process, is_ready, log)
        yield
    finally:
        process.send_signal(signal.SIGINT)  # both servers: at once, and in order
        process.wait()


def _await(process: "subprocess.Popen[bytes]", is_ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
            raise CannotStart(f"{Path(process.args[0]).name} did not start: {last}")  # type: ignore[index,arg-type]
        time.sleep(0.02)
