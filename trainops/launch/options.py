"""The options of `up`."""

import argparse
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainops import paths, worker_end

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - recognised here, never a default
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

DESCRIPTION = """\
Start trainops on this machine. In a clone, the first start installs all packages into .venv. All
data is stored in one data directory. Ctrl-C stops trainops; running operations are saved first and
resume at the next start.
"""
EPILOG = """\
TRAINOPS_DATABASE_URL and TRAINOPS_BROKER_URL replace the embedded database and the embedded Redis.
To add a machine, set both to the values of the first machine and use --only-workers with a shared
--data-dir; with --until and --idle-exit its workers end by themselves.
"""


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    host: str
    port: int
    data_dir: Path
    workers: int
    only_workers: bool
    demo: bool
    install: bool
    postgres: bool
    take_over_storage: bool = False
    until: float | None = None  # Unix time at which the workers end
    idle_exit: str = ""  # a duration without work after which a worker ends

    @property
    def connect_host(self) -> str:
        """Where this machine reaches the web server."""
        if self.host == "::":
            return "::1"
        return "127.0.0.1" if self.host in EVERYWHERE else self.host

    @property
    def is_exposed(self) -> bool:
        """Whether other machines reach the web server."""
        return self.host not in LOCAL_NAMES and self.host != "::1"

    @property
    def url(self) -> str:
        host = self.connect_host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def log_dir(self) -> Path:
        """Where programs write; machines that share a data directory do not share their logs."""
        here = self.data_dir / "log"
        return here / socket.gethostname() if self.only_workers else here


def parse(arguments: Sequence[str]) -> LaunchOptions:
    """Exits with 2 and the usage on a bad argument, with 0 after --help."""
    known = parser()
    found = known.parse_args(arguments)
    for option, value in (("--until", found.until), ("--idle-exit", found.idle_exit)):
        if value and not found.only_workers:
            known.error(f"{option} needs --only-workers: web and beat have no end")
    if found.take_over_storage and found.only_workers:
        known.error("--take-over-storage is for the machine with web and beat, not --only-workers")
    return LaunchOptions(
        host=found.host,
        port=found.port,
        data_dir=found.data_dir.expanduser().resolve(),
        workers=found.workers,
        only_workers=found.only_workers,
        demo=found.demo,
        install=not found.no_install,
        postgres=found.postgres,
        take_over_storage=found.take_over_storage,
        until=worker_end.moment(found.until, now=time.time()) if found.until else None,
        idle_exit=found.idle_exit or "",
    )


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{paths.COMMAND} up",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_shared(parser)
    add = parser.add_argument
    add("--demo", action="store_true", help="also submit a small operation of each kind, once")
    add("--postgres", action="store_true", help="use an embedded PostgreSQL instead of SQLite")
    add(
        "--take-over-storage",
        action="store_true",
        help="take over the checkpoint and dataset storages of another installation, "
        "which can no longer use them",
    )
    add("--no-install", action="store_true", help="use the installed packages")
    return parser


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what runs where; `install-service` has them, too."""
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for the network")
    add("--port", type=_port, default=8000, help="port to listen on (default: 8000)")
    default = paths.data_dir()
    add("--data-dir", type=Path, default=default, help=f"data directory (default: {default})")
    add(
        "--workers",
        type=_count,
        default=1,
        metavar="N",
        help="number of worker processes (default: 1)",
    )
    add("--only-workers", action="store_true", help="start only workers (on additional machines)")
    add(
        "--until",
        type=_end,
        metavar="TIME",
        help="time at which the workers have saved and ended, with --only-workers: 04:30, "
        "2026-11-27T04:30 or 2h",
    )
    add(
        "--idle-exit",
        type=_duration,
        metavar="DURATION",
        help="time without work after which a worker ends, with --only-workers: 90s, 10m or 2h",
    )


def _port(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{number} is not a port (1 to 65535)")
    return number


def _end(text: str) -> str:
    now = time.time()
    try:
        found = worker_end.moment(text, now=now)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"got {text!r}; {problem}") from None
    if found <= now:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, which has passed: it is {worker_end.written(now)}"
        )
    return text


def _duration(text: str) -> str:
    try:
        worker_end.seconds(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"got {text!r}; {problem}") from None
    return text


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 64:
        raise argparse.ArgumentTypeError(f"{number} is not a number of workers (0 to 64)")
    return number


def natural(text: str) -> int:
    """Return a whole number from 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"got {number}; allowed: a whole number from 0")
    return number


def positive(text: str) -> int:
    """Return a whole number from 1."""
    if natural(text) == 0:
        raise argparse.ArgumentTypeError("got 0; allowed: a whole number from 1")
    return int(text)
