"""`python3 -m trainops test`: the set-up with the test extra, then every check of the project.

All run even when one fails. pytest comes twice: the tests marked `database` on PostgreSQL, then
everything on the embedded stack, whose summary is the last thing printed by a tool.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from trainops import paths
from trainops.launch import environment
from trainops.launch.refusal import CannotStart

# Seconds: the loop, checkpoints in memory, the lifecycle, and one page of the API.
SMOKE = (
    "tests/engines/test_runner.py", "tests/engines/test_policy.py", "tests/engines/test_wire.py",
    "tests/operations/test_lifecycle.py", "tests/operations/test_restarts.py",
    "tests/operations/test_outcomes.py", "tests/operations/test_blocking.py",
    "tests/api/test_operations.py",
)  # fmt: skip
QUICK = "not (slow or browser or journey or exhaustive)"
HEAVY = "browser or journey"
DATABASE = "database"  # once more, on PostgreSQL
WAITING_PROCESSES = 3  # at least, of tests that start other processes and wait for them
INSTALLATION_PROCESSES = 4  # whole installations wait for each of their processes to start
ON_POSTGRES = "postgres and slow"  # once, where there is a PostgreSQL
LONG = "exhaustive"  # only on request: with them, a machine of two cores needs most of an hour
NO_TEST = 5  # pytest's exit code
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 8 * 2**30  # noqa: S108 - a private directory is made in it
PYTHON = (sys.executable, "-m")
IMPORT_LINTER = "from importlinter.cli import lint_imports_command as run; run()"


@dataclass(frozen=True, slots=True)
class CheckStep:
    """One tool: its name, its command, and what it needs in its environment."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    may_be_empty: bool = False  # pytest's "no test was selected" is no failure


def test(arguments: Sequence[str]) -> int:
    """Return 0 when everything passed, 1 when anything failed."""
    environment.require_clone("test")
    chosen = _parser().parse_args(arguments)
    _enter(["test", *arguments])
    with ExitStack() as stack:
        stack.enter_context(_files_in_memory())
        if chosen.smoke:
            steps = _smoke(chosen)
        else:
            on_postgres = [] if chosen.quick else _on_postgres(chosen, stack)
            steps = [*_checks(), *on_postgres, *_on_sqlite(chosen, bool(on_postgres))]
        failed = [step.name for step in steps if not _run(step)]
    if failed:
        print(f"Failed: {', '.join(failed)}", flush=True)
    return int(bool(failed))


def bench(arguments: Sequence[str]) -> int:
    """Measure: `benchmarks/` decides what, and what its arguments mean."""
    environment.require_clone("bench")
    import_module("benchmarks.__main__").parser().parse_args(arguments)  # help installs nothing
    _enter(["bench", *arguments])
    command = [*PYTHON, "benchmarks", *arguments]
    return subprocess.run(command, cwd=paths.ROOT, check=False).returncode


def chaos(arguments: Sequence[str]) -> int:
    """A storm of random faults over a whole installation of its own; see tests/faults."""
    environment.require_clone("chaos")
    import_module("tests.faults.options").parser().parse_args(arguments)  # help installs nothing
    _enter(["chaos", *arguments])
    command = [*PYTHON, "tests.faults", *arguments]
    return subprocess.run(command, cwd=paths.ROOT, check=False).returncode


def _enter(arguments: Sequence[str]) -> None:
    """Be in the environment, with the test extra; comes back only there."""
    environment.ensure(paths.ROOT / "var" / "log", extras=["test"])
    if not environment.is_active():
        environment.enter(arguments)


@contextmanager
def _files_in_memory() -> Iterator[None]:
    """Have tests write into memory where it has room, unless TMPDIR names a directory.

    They save thousands of checkpoints, each of which waits for the disk several times.
    """
    if "TMPDIR" in os.environ or not _has_room(MEMORY):
        yield
        return
    with TemporaryDirectory(prefix="tests-", dir=MEMORY, ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o711)  # PostgreSQL runs as another user than root
        os.environ["TMPDIR"] = directory
        try:
            yield
        finally:
            del os.environ["TMPDIR"]


def _has_room(directory: Path) -> bool:
    """Whether there is such a file system with enough space, from which programs can run."""
    if not directory.is_dir() or os.statvfs(directory).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(directory).free >= MEMORY_BYTES


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m trainops test",
        description="Run ruff, mypy, import-linter, makemigrations --check and pytest.",
        epilog="Arguments after -- go to pytest.",
    )
    parser.add_argument(
        "--smoke", action="store_true", help="a few files only, in seconds, and ruff"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="skip PostgreSQL and the slow, browser and journey tests",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also run the exhaustive tests: each protection removed, thousands of damaged files",
    )
    parser.add_argument("pytest", nargs="*", metavar="-- PYTEST_ARGUMENT", help="-- -k name -x …")
    return parser


def _checks() -> list[CheckStep]:
    return [
        CheckStep("ruff check", [*PYTHON, "ruff", "check", "."]),
        CheckStep("ruff format", [*PYTHON, "ruff", "format", "--check", "."]),
        CheckStep("mypy", [*PYTHON, "mypy"]),
        CheckStep("import-linter", [sys.executable, "-c", IMPORT_LINTER]),
        CheckStep(
            "migrations", [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"]
        ),
    ]


def _smoke(chosen: argparse.Namespace) -> list[CheckStep]:
    lint = CheckStep("ruff check", [*PYTHON, "ruff", "check", "."])
    command = [*PYTHON, "pytest", "-q", "-m", QUICK, *SMOKE, *chosen.pytest]
    return [lint, CheckStep("pytest", command)]


def _on_sqlite(chosen: argparse.Namespace, has_postgres: bool) -> list[CheckStep]:
    """What starts browsers and whole installations comes by itself, and mostly waits."""
    # A person's own selection may hold nothing of the one or of the other part.
    own = bool(chosen.pytest) and not chosen.quick
    beside = QUICK if chosen.quick else _marked(f"not ({HEAVY})", chosen)
    if has_postgres and not chosen.all:
        beside = f"{beside} and not ({ON_POSTGRES})"
    at_least = 1 if chosen.quick else WAITING_PROCESSES
    command = [*_side_by_side(at_least), "-m", beside, *chosen.pytest]
    steps = [CheckStep("pytest", command, may_be_empty=own)]
    if not chosen.quick:
        heavy = ["-m", _marked(f"({HEAVY})", chosen), *chosen.pytest]
        command = [*_side_by_side(INSTALLATION_PROCESSES), *heavy]
        steps.append(CheckStep("pytest, whole installations", command, may_be_empty=own))
    return steps


def _marked(tests: str, chosen: argparse.Namespace) -> str:
    """Return the marks of these tests, without those that are left to a run of all."""
    return tests if chosen.all else f"{tests} and not {LONG}"


def _side_by_side(at_least: int = 1) -> list[str]:
    """Return pytest in several processes that take whole files, ordered by tests/conftest.py."""
    num_processes = max(at_least, os.cpu_count() or 1)
    by_file = ["--dist", "loadfile", "--no-loadscope-reorder"]
    ends_at_crash = ["--max-worker-restart", "0"]  # else the run waits for ever for a lost file
    return [*PYTHON, "pytest", "-n", str(num_processes), *by_file, *ends_at_crash]


def _on_postgres(chosen: argparse.Namespace, stack: ExitStack) -> list[CheckStep]:
    """The second database, where there is one. With CI set, there has to be."""
    # It needs psycopg, which is here only now.
    from trainops.launch.servers import postgres_server  # noqa: PLC0415

    try:
        url = stack.enter_context(postgres_server())
    except CannotStart as problem:
        if os.environ.get("CI"):
            raise
        print(f"pytest on PostgreSQL is skipped: {problem}", flush=True)
        return []
    command = [*_side_by_side(WAITING_PROCESSES), "-m", _marked(DATABASE, chosen), *chosen.pytest]
    env = {"TRAINOPS_DATABASE_URL": url}
    # A person's own selection may hold no test that is marked; our own must.
    return [CheckStep("pytest on PostgreSQL", command, env, may_be_empty=bool(chosen.pytest))]


def _variables(step: CheckStep) -> dict[str, str]:
    """Return the environment of a step, in which Python may cache bytecode.

    Without the cache each process of pytest rewrites the assertions of all test files: 8 s.
    """
    inherited = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    return inherited | dict(step.env)


def _run(step: CheckStep) -> bool:
    print(f"── {step.name}", flush=True)
    started = time.monotonic()
    done = subprocess.run(step.command, cwd=paths.ROOT, env=_variables(step), check=False)
    has_passed = done.returncode == 0 or (step.may_be_empty and done.returncode == NO_TEST)
    verdict = "passed" if has_passed else f"FAILED (exit code {done.returncode})"
    print(f"── {step.name}: {verdict} in {time.monotonic() - started:.1f} s\n", flush=True)
    return has_passed
