"""What can be done to an installation, at random. Each fault says which endings it may explain."""

import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import psutil
from kombu import Connection

from tests.faults.inside import sitecustomize as inside
from trainops.celery import app
from trainops.runtime.checkpoint import storage_identity

if TYPE_CHECKING:
    from tests.faults.storm import Storm

Chance: TypeAlias = random.Random
NURSERY, WORKER, BEAT = (
    "trainops.process.forkserver",
    "trainops.celery worker",
    "trainops.celery beat",
)
LOST = frozenset({"WORKER_LOST", "LEASE_LOST"})
AWAY = LOST | {"SHUTDOWN", "PLATFORM_ERROR"}  # without the database what runs is saved and ended
STOPPED = frozenset({"CANCELLED_BY_PERSON", "CANCEL_TIMEOUT"})
HOUR = 3600.0
SMALL_DISK_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Fault:
    """`inflict` does it now; attempts may end with the reasons that it `explains`."""

    name: str
    inflict: Callable[["Storm", Chance], None]
    explains: frozenset[str] = frozenset()
    needs: str = ""  # "postgres", "sqlite", "disk": what the installation must have


def _children(storm: "Storm") -> list[psutil.Process]:
    return [child for each in storm.stack.processes(NURSERY) for child in each.children()]


def _broker(storm: "Storm") -> Connection:
    patience = {"socket_timeout": 2, "socket_connect_timeout": 2}  # it may be frozen
    return Connection(storm.over.broker_url, transport_options=patience)


def _one(storm: "Storm", chance: Chance, word: str) -> psutil.Process:
    return chance.choice(storm.stack.processes(word))


def _to(word: str, *signals: int) -> Callable[["Storm", Chance], None]:
    def inflict(storm: "Storm", chance: Chance) -> None:
        process = _one(storm, chance, word)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.3 if len(signals) > 1 else 0)

    return inflict


def _freeze(word: str) -> Callable[["Storm", Chance], None]:
    """Frozen for longer than a lease; what wakes up is a ghost."""

    def inflict(storm: "Storm", chance: Chance) -> None:
        storm.freeze([_one(storm, chance, word)])

    return inflict


def _kill_child(storm: "Storm", chance: Chance) -> None:
    chance.choice(_children(storm)).kill()


def _crash_child(storm: "Storm", chance: Chance) -> None:
    chance.choice(_children(storm)).send_signal(signal.SIGSEGV)


def _freeze_child(storm: "Storm", chance: Chance) -> None:
    storm.freeze([chance.choice(_children(storm))])


def _sleep_machine(storm: "Storm", chance: Chance) -> None:
    """A worker and all that it started stand still, as on a machine that sleeps."""
    worker = _one(storm, chance, WORKER)
    storm.freeze([worker, *worker.children(recursive=True)])


def _remote_shutdown(storm: "Storm", chance: Chance) -> None:
    with _broker(storm) as connection:
        name = chance.choice([each["worker_id"] for each in storm.stack.get("workers")])
        app.control.shutdown(destination=[name], connection=connection)


def _jump_clock(storm: "Storm", chance: Chance) -> None:
    hours = chance.choice([-1, 1])
    (storm.over.hooks / "clock").write_text(str(hours * HOUR))
    for process in storm.stack.processes(WORKER):
        process.send_signal(inside.JUMP)


def _kill_at(storm: "Storm", chance: Chance) -> None:
    """The next process that comes to this point dies there."""
    (storm.over.hooks / f"armed-{chance.choice(inside.NAMES)}").touch()


def _flush_broker(storm: "Storm", chance: Chance) -> None:
    with _broker(storm) as connection:
        connection.default_channel.client.flushall()


def _send_odd_hints(storm: "Storm", chance: Chance) -> None:
    """Messages twice, for what is done, and for what never was."""
    ids = [*storm.operations, *storm.operations, "op_training_20200101_000000_abcdef", ""]
    chance.shuffle(ids)
    with _broker(storm) as connection:
        for operation_id in ids:
            app.send_task("trainops.wake", args=[operation_id], connection=connection, retry=False)


def _freeze_broker(storm: "Storm", chance: Chance) -> None:
    storm.freeze(storm.stack.processes("redis-server"))


def _postmaster(storm: "Storm") -> psutil.Process:
    servers = storm.stack.processes("bin/postgres")
    return min(servers, key=lambda process: (process.create_time(), process.pid))


def _stop_database(number: int) -> Callable[["Storm", Chance], None]:
    def inflict(storm: "Storm", chance: Chance) -> None:
        _postmaster(storm).send_signal(number)

    return inflict


def _freeze_database(storm: "Storm", chance: Chance) -> None:
    postmaster = _postmaster(storm)
    storm.freeze([postmaster, *postmaster.children()])


def _lock_database(storm: "Storm", chance: Chance) -> None:
    """Another process writes, and does not stop for longer than a lease."""
    connection = sqlite3.connect(
        storm.stack.data_dir / "trainops.sqlite3", timeout=1, check_same_thread=False
    )
    connection.isolation_level = None
    connection.execute("BEGIN IMMEDIATE")
    storm.heal_later(storm.beyond_a_lease, connection.close)


def _network(service: str, mode: str) -> Callable[["Storm", Chance], None]:
    def inflict(storm: "Storm", chance: Chance) -> None:
        proxy = storm.over.proxies[service]
        if mode == "forget":
            proxy.forget()
            return
        proxy.become(mode)
        storm.heal_later(chance.uniform(1, storm.beyond_a_lease), lambda: proxy.become("pass"))

    return inflict


def _fill_disk(storm: "Storm", chance: Chance) -> None:
    root = storm.stack.data_dir / "checkpoints"
    if shutil.disk_usage(root).total > SMALL_DISK_BYTES:
        raise ValueError("another directory covers the small disk")
    disk = os.open(root, os.O_DIRECTORY)  # another storage may cover it by then

    def heal() -> None:
        with suppress(FileNotFoundError):
            os.unlink("ballast", dir_fd=disk)
        os.close(disk)

    storm.heal_later(3.0, heal)
    fill(root / "ballast")


def fill(ballast: Path) -> None:
    """Take every byte that is left on the disk of this file."""
    with ballast.open("ab") as file, suppress(OSError):
        while True:
            os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), 1 << 16)


def _cover_storage(name: str) -> Callable[["Storm", Chance], None]:
    """Have the storage's directory show another one, as an unmounted or a wrong disk does.

    Nothing of ours may be written there, and nothing that is there may be changed.
    """

    def inflict(storm: "Storm", chance: Chance) -> None:
        root, other = storm.stack.data_dir / "checkpoints", storm.over.hooks.parent / name
        if not other.exists():
            _furnish(other, is_foreign=name == "foreign")
        before = _content(other)
        subprocess.run(["mount", "--bind", str(other), str(root)], check=True)

        def heal() -> None:
            subprocess.run(["umount", "--lazy", str(root)], check=True)
            if (after := _content(other)) != before:
                storm.violations.append(f"I5 the {name} storage was changed: {before} -> {after}")

        storm.heal_later(chance.uniform(1, storm.beyond_a_lease), heal)

    return inflict


def _furnish(directory: Path, *, is_foreign: bool) -> None:
    """Make an empty directory, or the storage of another installation with old work in it."""
    directory.mkdir()
    if is_foreign:
        storage_identity.write(directory, "f" * 32)
        old = directory / "op_training_20200101_000000_abcdef" / "a0001-s0000000009-final"
        old.mkdir(parents=True)
        for path in (old / "manifest.json", old / "model.pt"):
            path.write_text("{}")
            os.utime(path, (0, 0))


def _content(directory: Path) -> list[tuple[str, int]]:
    return sorted((str(each), each.stat().st_mtime_ns) for each in directory.rglob("*"))


def _all_workers(what: Callable[["Storm", list[psutil.Process]], None]) -> Callable[..., None]:
    def inflict(storm: "Storm", chance: Chance) -> None:
        what(storm, storm.stack.processes(WORKER))

    return inflict


def _kill_all(storm: "Storm", processes: list[psutil.Process]) -> None:
    for each in processes:
        each.kill()


def _freeze_all(storm: "Storm", processes: list[psutil.Process]) -> None:
    storm.freeze(processes)


def _kill_restarted(storm: "Storm", chance: Chance) -> None:
    """A worker dies, is back within seconds, and dies again."""
    known = {each.pid for each in storm.stack.processes(WORKER)}
    _one(storm, chance, WORKER).kill()
    ends_at = time.monotonic() + 10
    while time.monotonic() < ends_at:
        if fresh := [each for each in storm.stack.processes(WORKER) if each.pid not in known]:
            time.sleep(chance.uniform(0, 4))
            fresh[0].kill()
            return
        time.sleep(0.1)


def _cut_answer(storm: "Storm", chance: Chance) -> None:
    """Somebody asks for something, and the line is cut before the answer."""
    wish = chance.choice(["cancel", "resume", "kill"])
    request = (
        f"POST /api/v1/operations/{chance.choice(storm.operations)}/{wish} HTTP/1.1\r\n"
        f"Host: 127.0.0.1\r\nAuthorization: {storm.stack.client.headers['Authorization']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    with socket.create_connection(("127.0.0.1", storm.stack.port), timeout=2) as line:
        line.sendall(request.encode())
        time.sleep(chance.uniform(0, 0.05))


def _ask(wish: str) -> Callable[["Storm", Chance], None]:
    def inflict(storm: "Storm", chance: Chance) -> None:
        storm.stack.client.post(f"operations/{chance.choice(storm.operations)}/{wish}")

    return inflict


def _resume(storm: "Storm", chance: Chance) -> None:
    for operation_id in storm.operations:
        storm.stack.client.post(f"operations/{operation_id}/resume")


def _preempt(storm: "Storm", chance: Chance) -> None:
    storm.preempt()


def _upgrade(storm: "Storm", chance: Chance) -> None:
    """Workers, web and beat are replaced by another version, one after another, as if by hand.

    What dies meanwhile comes back as the other version, too. The other version is a copy of this
    tree in another directory, with another version number, so that two versions share database,
    broker and storage: nodes wait for workers of their version. It is not the released 0.1.0, whose
    stopping workers may end an operation that they have just claimed with PLATFORM_ERROR; and what
    a newer version saved may not be read by it. tests/journey/test_rolling.py has that one. `up`,
    the database and the broker are not replaced.
    """
    pause_seconds = chance.uniform(5, 10)
    storm.over.change_version()
    for number, process in enumerate(storm.over.programs()):
        storm.heal_later(number * pause_seconds, process.terminate)


def _lose_all(storm: "Storm", chance: Chance) -> None:
    """A backup is made now; some time later it is all that is left, and is restored."""
    storm.back_up(chance.uniform(1, storm.beyond_a_lease))


def _is(*reasons: str) -> frozenset[str]:
    return frozenset(reasons)


FAULTS = [
    Fault("kill child", _kill_child, _is("PROCESS_KILLED")),
    Fault("crash child", _crash_child, _is("SEGMENTATION_FAULT")),
    Fault("freeze child", _freeze_child, _is("LEASE_LOST", "SHUTDOWN")),
    Fault("kill forkserver", _to(NURSERY, signal.SIGKILL), _is("PROCESS_KILLED", "PLATFORM_ERROR")),
    Fault("freeze forkserver", _freeze(NURSERY), _is("PLATFORM_ERROR", "SHUTDOWN")),
    Fault("kill worker", _to(WORKER, signal.SIGKILL), LOST),
    Fault("stop worker", _to(WORKER, signal.SIGTERM), _is("SHUTDOWN")),
    Fault("interrupt worker", _to(WORKER, signal.SIGINT), _is("SHUTDOWN")),
    Fault("quit worker", _to(WORKER, signal.SIGQUIT), LOST | {"SHUTDOWN"}),
    Fault(
        "stop worker twice",
        _to(WORKER, signal.SIGTERM, signal.SIGTERM),
        LOST | {"SHUTDOWN"},
    ),
    Fault("shut down worker by remote control", _remote_shutdown, _is("SHUTDOWN")),
    Fault("freeze worker", _freeze(WORKER), LOST | {"SHUTDOWN"}),
    Fault("sleep machine", _sleep_machine, LOST | {"SHUTDOWN"}),
    Fault("jump clock", _jump_clock),
    Fault("kill at a point", _kill_at, LOST),
    Fault("kill beat", _to(BEAT, signal.SIGKILL)),
    Fault("kill web", _to("trainops.web", signal.SIGKILL)),
    Fault("kill broker", _to("redis-server", signal.SIGKILL)),
    Fault("freeze broker", _freeze_broker),
    Fault("flush broker", _flush_broker),
    Fault("odd hints", _send_odd_hints),
    Fault("stop database", _stop_database(signal.SIGQUIT), AWAY, "postgres"),
    Fault("restart database", _stop_database(signal.SIGINT), AWAY, "postgres"),
    Fault("freeze database", _freeze_database, AWAY, "postgres"),
    Fault("lock database", _lock_database, AWAY, "sqlite"),
    Fault("partition from database", _network("database", "stall"), AWAY, "postgres"),
    Fault("cut from database", _network("database", "cut"), AWAY, "postgres"),
    Fault("slow database", _network("database", "slow"), AWAY, "postgres"),
    Fault("half-open database", _network("database", "forget"), AWAY, "postgres"),
    Fault("partition from broker", _network("broker", "stall"), needs="postgres"),
    Fault("cut from broker", _network("broker", "cut"), needs="postgres"),
    Fault("half-open broker", _network("broker", "forget"), needs="postgres"),
    Fault("fill disk", _fill_disk, _is("STORAGE_ERROR"), "disk"),
    Fault("storage away", _cover_storage("away"), _is("STORAGE_ERROR"), "disk"),
    Fault("foreign storage", _cover_storage("foreign"), _is("STORAGE_ERROR"), "disk"),
    Fault("kill all workers", _all_workers(_kill_all), LOST),
    Fault("freeze all workers", _all_workers(_freeze_all), LOST | {"SHUTDOWN"}),
    Fault("kill worker again once it is back", _kill_restarted, LOST),
    Fault("cut answer", _cut_answer, STOPPED | {"KILLED_BY_PERSON"}),
    Fault("cancel", _ask("cancel"), STOPPED),
    Fault("kill operation", _ask("kill"), _is("KILLED_BY_PERSON", "CANCELLED_BY_PERSON")),
    Fault("resume", _resume),
    Fault("preempt", _preempt, _is("PREEMPTED")),
    Fault("rolling upgrade", _upgrade, _is("SHUTDOWN")),
    Fault("restore from a backup", _lose_all, LOST),
]
