"""Temporary files of attempts: below a directory of each attempt, removed with its end."""

import errno
import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from apps.operations.attempts.children import ForkServer, ForkServerUnavailable
from apps.operations.attempts.temporary_files import MAX_ROOT_BYTES, PREFIX, TemporaryFiles
from apps.operations.requests import services
from tests.operations.attempts import Running, run, submit
from tests.waiting import has_ended, wait_until

pytestmark = pytest.mark.slow
WORKER = """
from apps.operations.attempts.temporary_files import TemporaryFiles
files = TemporaryFiles()
files.open()
(files.new() / "left").touch()
print(files.directory, flush=True)
input()
"""
SOCKETS = ["pymp-xxxxxxxx/listener-xxxxxxxx", "torch-shm-dir-xxxxxx/manager.sock"]


@pytest.fixture
def root(monkeypatch):
    """A short directory, as /tmp is."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


@pytest.fixture
def opened(root):
    """Open the files of as many workers as asked."""
    found = []

    def open_another():
        found.append(TemporaryFiles())
        found[-1].open()
        return found[-1]

    yield open_another
    for each in found:
        each.close()


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.django_db(transaction=True)
def test_a_killed_attempt_with_loader_workers_leaves_no_temporary_files(runtime):
    directory = runtime.forkserver.temporary_files.directory
    of_earlier_tests = set(directory.iterdir())
    parameters = {"epochs": 100_000, "num_workers": 2}
    config = {"recipe": "pair", "parameters": parameters, "threads": 1}
    running = Running(runtime, services.submit(kind="loop", config=config, owner=None))
    wait_until(lambda: list(directory.glob("*/pymp-*/listener-*")))
    child = psutil.Process(running.pid)
    processes = [child, *child.children(recursive=True)]
    child.kill()

    assert running.ended().reason == "PROCESS_KILLED"

    assert len(processes) > 2
    assert all(map(has_ended, processes))
    assert set(directory.iterdir()) <= of_earlier_tests


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.django_db(transaction=True)
def test_a_completed_attempt_leaves_no_temporary_files(runtime):
    directory = runtime.forkserver.temporary_files.directory
    of_earlier_tests = set(directory.iterdir())
    assert run(runtime, submit()).state == "COMPLETED"
    assert set(directory.iterdir()) <= of_earlier_tests
    assert directory.is_dir()


def test_a_worker_that_starts_removes_the_files_of_killed_workers_only(root, opened):
    living = opened()
    of_an_attempt = living.new()
    killed = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    left = Path(killed.stdout.readline().strip())
    opened().close()
    assert left.parent == root
    assert [each.name for each in left.glob("*/*")] == ["left"]

    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    other = opened()

    assert not left.exists()
    assert of_an_attempt.is_dir()
    other.close()
    assert list(root.iterdir()) == [living.directory]


def test_directories_of_other_users_stay(root, monkeypatch):
    directory = root / f"{PREFIX}foreign"
    directory.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: directory.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        TemporaryFiles().open()
    assert directory.is_dir()


@pytest.mark.parametrize("path", SOCKETS)
def test_sockets_of_loader_workers_have_room_below_the_longest_path(
    root, opened, monkeypatch, path
):
    longest = root / ("x" * (MAX_ROOT_BYTES - len(os.fsencode(root)) - 1))
    longest.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(longest))
    address = opened().new() / path
    address.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))


def test_a_longer_path_is_used_as_it_is_with_a_warning(root, opened, monkeypatch, caplog):
    longer = root / ("x" * (MAX_ROOT_BYTES - len(os.fsencode(root))))
    longer.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(longer))
    with caplog.at_level(logging.WARNING):
        assert opened().new() is None
    assert f"TMPDIR: got {longer} ({MAX_ROOT_BYTES + 1} bytes); allowed: " in caplog.text
    assert list(longer.iterdir()) == []


def test_attempts_share_what_was_compiled(runtime):
    environment = psutil.Process(runtime.forkserver._process.pid).environ()
    shared = Path(environment["TORCHINDUCTOR_CACHE_DIR"])
    assert runtime.forkserver.temporary_files.directory not in shared.parents


@pytest.mark.parametrize("is_locked", [False, True])
def test_a_directory_that_another_start_takes_for_a_leftover_is_replaced(
    opened, monkeypatch, is_locked
):
    """It may be removed, or just locked to be removed, before its own worker has locked it."""
    made, create = [], tempfile.mkdtemp
    locks = []

    def create_and_lose(**options):
        directory = create(**options)
        if not made and is_locked:
            locks.append(os.open(directory, os.O_RDONLY))
            fcntl.flock(locks[0], fcntl.LOCK_EX)
        elif not made:
            Path(directory).rmdir()
        made.append(directory)
        return directory

    monkeypatch.setattr(tempfile, "mkdtemp", create_and_lose)
    files = opened()
    assert len(made) == 2
    assert files.directory == Path(made[1])
    assert files.directory.is_dir()
    for each in locks:
        os.close(each)


@pytest.mark.parametrize(("module", "name"), [(socket, "socketpair"), (os, "pipe")])
def test_without_descriptors_no_child_is_started_and_nothing_is_left(
    forkserver, monkeypatch, module, name
):
    def refused(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(module, name, refused)
        with pytest.raises(ForkServerUnavailable, match="Too many open files"):
            forkserver.start("op:1")
    assert list(forkserver.temporary_files.directory.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.slow
def test_a_forkserver_continues_where_no_look_for_work_can_begin():
    looks = []

    def look():
        looks.append(1)
        raise RuntimeError("can't start new thread")

    forkserver = ForkServer(when_ready=look)
    forkserver.open()
    wait_until(lambda: looks)
    child = forkserver.start("op:1")
    child.end()
    child.close()
    forkserver.close()
    assert len(looks) == 1
