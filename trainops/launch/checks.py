"""What must hold before anything is started: each failure is one line, said before any waiting."""

import errno
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainops.launch.refusal import CannotStart

GIB, MIB = 1024**3, 1024**2
RUN_BYTES = 200 * MIB


def free_bytes(path: Path) -> int:
    """Free space where `path` is, or will be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def require_space(
    path: Path, needed: int, purpose: str, free: Callable[[Path], int] = free_bytes
) -> None:
    """Raise CannotStart unless the disk of `path` has `needed` bytes left."""
    if (left := free(path)) < needed:
        raise CannotStart(
            f"The disk is full: {_size(left)} free at {path}, {_size(needed)} required {purpose}."
        )


def require_writable(directory: Path) -> None:
    """Make the directory, readable by its owner only, and prove that files can be made in it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise CannotStart(
            f"The data directory {directory} is not writable: {error.strerror}. "
            "Choose another with --data-dir."
        ) from error


def umask() -> int:
    """Return which permissions new files do not get. Raises CannotStart."""
    given = os.environ.get("TRAINOPS_UMASK") or "077"
    if not re.fullmatch("[0-7]{3,4}", given):
        raise CannotStart(f"TRAINOPS_UMASK: got {given!r}; allowed: octal digits, such as 077.")
    return int(given, 8)


def close_to_others(directory: Path) -> bool:
    """Take from other users what TRAINOPS_UMASK takes; return whether the directory was open.

    The directory and what is directly in it are enough: all else is below.
    """
    mask, was_open = umask(), bool(directory.stat().st_mode & umask() & 0o066)
    for path in [directory, *directory.iterdir()]:
        mode = path.lstat().st_mode
        if mode & mask & 0o066 and (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            path.chmod(stat.S_IMODE(mode) & ~mask)
    return was_open


def require_stores_elsewhere() -> None:
    """Raise CannotStart unless database and broker are named: workers alone start neither."""
    needed = ("TRAINOPS_DATABASE_URL", "TRAINOPS_BROKER_URL")
    if missing := [name for name in needed if not os.environ.get(name)]:
        raise CannotStart(
            f"--only-workers joins an installation; set {' and '.join(missing)} to the "
            "values of its first machine."
        )


def require_port(host: str, port: int) -> None:
    """Raise CannotStart unless a server could listen there now (no SO_REUSEPORT, on purpose)."""
    family, kind, protocol, _, address = _resolve(host, port)
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise CannotStart(_port_message(host, port, error)) from error


def _resolve(host: str, port: int) -> tuple[int, int, int, str, tuple[object, ...]]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise CannotStart(f"--host {host} is not an address of this machine.") from error


def _port_message(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use by another program. Choose another with --port."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"This user is not allowed to use port {port}. Choose one above 1023 with --port."
    return f"Cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}."


def _size(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= GIB else f"{num_bytes / MIB:.0f} MiB"
