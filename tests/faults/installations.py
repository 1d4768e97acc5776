"""The installations that faults are done to: one machine, or two and a network."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.proxy import Proxy, proxy
from tests.journey.stack import Stack, joined, running
from trainops.launch.embedded import redis_url, socket_directory

HOOKS = Path(__file__).parent / "inside"
DISK_SIZE = "256m"
STORMY = {
    "TRAINOPS_RECIPES": "tests.recipes.scripted:RECIPE,tests.federated.crowd:RECIPE",
    # Cleaning up all the time must not disturb what is being written.
    "TRAINOPS_UNOWNED_FILE_AGE_SECONDS": "1",
    "TRAINOPS_CLEANUP_INTERVAL_HOURS": "0.001",
    "TRAINOPS_PREEMPT_AFTER_SECONDS": "2",
}


@dataclass(frozen=True, slots=True)
class Installation:
    stack: Stack
    hooks: Path  # the directory of tests/faults/inside
    broker_url: str
    has: frozenset[str]  # "postgres" or "sqlite"; "disk": one that can be filled
    proxies: Mapping[str, Proxy] = field(default_factory=dict)


@contextmanager
def one_machine(**timings: str) -> Iterator[Installation]:
    """SQLite and Redis embedded, two workers."""
    with ExitStack() as stack:
        directory, environment, has = _prepare(stack, timings)
        up = stack.enter_context(running(directory / "var", workers=2, **environment))
        broker = redis_url(socket_directory(directory / "var") / "redis.sock")
        yield Installation(up, directory / "hooks", broker, has | {"sqlite"})


@contextmanager
def two_machines(**timings: str) -> Iterator[Installation]:
    """PostgreSQL and Redis; the second machine's worker reaches both over a network that fails."""
    with ExitStack() as stack:
        directory, environment, has = _prepare(stack, timings)
        data_dir = directory / "var"
        up = stack.enter_context(running(data_dir, "--postgres", workers=1, **environment))
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
        stack.enter_context(joined(up, **environment | elsewhere))
        has |= {"postgres"}
        yield Installation(up, directory / "hooks", redis_url(broker), has, proxies)


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
