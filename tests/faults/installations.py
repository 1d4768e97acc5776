"""The installations that faults are done to: one machine, or two and a network."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults.copying import copy_project
from tests.faults.proxy import Proxy, proxy
from tests.journey.stack import PROGRAM, ROOT, Stack, _environment, joined, running
from tests.waiting import has_ended, wait_until
from trainops.launch.embedded import redis_url, socket_directory
from trainops.version import VERSION

HOOKS = Path(__file__).parent / "inside"
NEIGHBOUR = f"{VERSION}.neighbour"
# In the order in which they are replaced.
PROGRAMS = ("trainops.celery worker", "trainops.web", "trainops.celery beat")
PATIENCE_SECONDS = 120.0
DISK_SIZE = "256m"
STORMY = {
    "TRAINOPS_RECIPES": "tests.recipes.scripted:RECIPE,tests.federated.crowd:RECIPE",
    # Cleaning up all the time must not disturb what is being written.
    "TRAINOPS_UNOWNED_FILE_AGE_SECONDS": "1",
    "TRAINOPS_CLEANUP_INTERVAL_HOURS": "0.001",
    "TRAINOPS_PREEMPT_AFTER_SECONDS": "2",
}


@dataclass(slots=True)
class Installation:
    directory: Path
    has: frozenset[str]  # "postgres" or "sqlite"; "disk": one that can be filled
    up: Callable[[ExitStack], Stack]  # start all machines, until the exit stack is closed
    proxies: Mapping[str, Proxy] = field(default_factory=dict)
    _stack: Stack | None = None
    _running: ExitStack = field(default_factory=ExitStack)

    @property
    def stack(self) -> Stack:
        assert self._stack is not None, "it was not started"
        return self._stack

    @property
    def data_dir(self) -> Path:
        return self.directory / "var"

    @property
    def hooks(self) -> Path:
        """The directory of tests/faults/inside."""
        return self.directory / "hooks"

    @property
    def broker_url(self) -> str:
        return redis_url(socket_directory(self.data_dir) / "redis.sock")

    @contextmanager
    def started(self) -> "Iterator[Installation]":
        try:
            self._stack = self.up(self._running)
            yield self
        except BaseException as error:
            # Each machine prints the end of its log.
            self._running.__exit__(type(error), error, error.__traceback__)
            raise
        self._running.close()

    def back_up(self) -> tuple[int, str]:
        """Run `backup`; return its exit code and its output."""
        return self._run("backup", str(self.directory / "backups"))

    def lose(self) -> None:
        """End every process of all machines at once, and delete all data."""
        machines = [psutil.Process(each.pid) for each in (self.stack.process, *self.stack.joined)]
        frozen: set[psutil.Process] = set()
        while new := _families(machines) - frozen:  # none starts another one meanwhile
            for each in new:
                with suppress(psutil.NoSuchProcess):
                    each.suspend()
            frozen |= new
        for each in frozen:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        wait_until(lambda: all(map(has_ended, frozen)))
        self._running.close()
        _empty(self.data_dir)

    def restore(self) -> tuple[int, str]:
        """Run `restore` and start all machines again; return its exit code and its output."""
        code, output = self._run(
            "restore", str(self.directory / "backups"), "--data-dir", str(self.data_dir)
        )
        if code == 0:
            self._running = ExitStack()
            self._stack = self.up(self._running)
        return code, output

    def _run(self, *arguments: str) -> tuple[int, str]:
        env = _environment({"TRAINOPS_DATA_DIR": str(self.data_dir)})
        try:
            done = subprocess.run(
                [*PROGRAM, *arguments], cwd=ROOT, env=env, capture_output=True, text=True,
                timeout=PATIENCE_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:  # the database may be frozen
            return -1, f"`{arguments[0]}` does not end"
        return done.returncode, done.stdout + done.stderr

    def change_version(self) -> None:
        """Have programs that `up` starts from now on be of the other version."""
        neighbour = self.directory / "neighbour"
        if not neighbour.exists():
            neighbour.mkdir()
            (copy_project(neighbour) / "trainops" / "version.py").write_text(
                f'VERSION = "{NEIGHBOUR}"\n'
            )
        other = ROOT if self.tree == neighbour else neighbour
        (self.hooks / "tree").write_text(str(other))

    @property
    def tree(self) -> Path:
        """The directory of the version that `up` starts now."""
        chosen = self.hooks / "tree"
        return Path(chosen.read_text()) if chosen.exists() else ROOT

    def programs(self) -> list[psutil.Process]:
        """Return the main processes of workers, web and beat, in the order of an upgrade."""
        machines = [each.pid for each in (self.stack.process, *self.stack.joined)]
        return [
            each
            for word in PROGRAMS
            for each in self.stack.processes(word)
            if each.ppid() in machines
        ]


@contextmanager
def one_machine(**timings: str) -> Iterator[Installation]:
    """SQLite and Redis embedded, two workers."""
    with ExitStack() as stack:
        directory, environment, has = _prepare(stack, timings)

        def up(running_now: ExitStack) -> Stack:
            return running_now.enter_context(running(directory / "var", workers=2, **environment))

        yield stack.enter_context(Installation(directory, has | {"sqlite"}, up).started())


@contextmanager
def two_machines(**timings: str) -> Iterator[Installation]:
    """PostgreSQL and Redis; the second machine's worker reaches both over a network that fails."""
    with ExitStack() as stack:
        directory, environment, has = _prepare(stack, timings)
        data_dir = directory / "var"
        broker = socket_directory(data_dir) / "redis.sock"
        proxies = {
            "database": stack.enter_context(proxy(data_dir / "postgres" / ".s.PGSQL.5432")),
            "broker": stack.enter_context(proxy(broker)),
        }
        elsewhere = {
            "TRAINOPS_DATABASE_URL": (
                f"postgresql://postgres@127.0.0.1:{proxies['database'].port}/postgres"
            ),
            "TRAINOPS_BROKER_URL": f"redis://127.0.0.1:{proxies['broker'].port}/0",
        }

        def up(running_now: ExitStack) -> Stack:
            first = running_now.enter_context(
                running(data_dir, "--postgres", workers=1, **environment)
            )
            running_now.enter_context(joined(first, **environment | elsewhere))
            return first

        made = Installation(directory, has | {"postgres"}, up, proxies)
        yield stack.enter_context(made.started())


def _families(machines: list[psutil.Process]) -> set[psutil.Process]:
    return {*machines, *(child for each in machines for child in each.children(recursive=True))}


def _empty(directory: Path) -> None:
    """Delete everything below a directory; disks stay mounted there."""
    for path in directory.iterdir():
        if path.is_mount():
            _empty(path)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _prepare(
    stack: ExitStack, timings: Mapping[str, str]
) -> tuple[Path, dict[str, str], frozenset[str]]:
    """Make a directory and in it, where that is allowed, a small disk that can be filled."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainops-")))
    directory.chmod(0o711)  # PostgreSQL's user must be able to pass
    (directory / "hooks").mkdir()
    checkpoints = directory / "var" / "checkpoints"
    checkpoints.mkdir(parents=True)
    environment = STORMY | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HOOKS), os.environ.get("PYTHONPATH")])),
        "TRAINOPS_TEST_FAULTS": str(directory / "hooks"),
        **timings,
    }
    has = frozenset({"disk"} if _mounted(checkpoints, stack) else set())
    return directory, environment, has


def _mounted(path: Path, stack: ExitStack) -> bool:
    """Whether a small disk could be mounted there; only root may."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE},mode=700", "tmpfs", str(path)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        return False
    stack.callback(_unmount, path)
    return True


def _unmount(path: Path) -> None:
    """Take away the small disk, and what a storm that broke off left mounted over it."""
    command = ["umount", "--lazy", str(path)]
    while not subprocess.run(command, check=False, capture_output=True).returncode:
        pass
