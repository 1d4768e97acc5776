"""`python3 -m trainops test`: the set-up with the test extra, then every check of the project.

All run even when one fails. pytest comes twice: the tests marked `database` on PostgreSQL, then
everything on the embedded stack, whose summary is the last thing printed by a tool.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module

from trainops import paths
from trainops.launch import environment
from trainops.launch.refusal import CannotStart

QUICK = "not (slow or browser or journey or exhaustive)"
HEAVY = "browser or journey"
MOST_HEAVY = 2  # processes: each test starts a web server, workers and perhaps a browser
LONG = "exhaustive"  # only on request: with them, a machine of two cores needs most of an hour
NO_TEST = 5  # pytest's exit code
PYTHON = (sys.executable, "-m")
IMPORT_LINTER = "from importlinter.cli import lint_imports_command as run; run()"


@dataclass(frozen=True, slots=True)
class Step:
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
        on_postgres = [] if chosen.quick else _on_postgres(chosen, stack)
        steps = [*_checks(), *on_postgres, *_on_sqlite(chosen)]
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m trainops test",
        description="Run ruff, mypy, import-linter, makemigrations --check and pytest.",
        epilog="Arguments after -- go to pytest.",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out PostgreSQL, and what is slow, browser or journey",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also what is exhaustive: each protection taken out, thousands of damaged files",
    )
    parser.add_argument("pytest", nargs="*", metavar="-- PYTEST_ARGUMENT", help="-- -k name -x …")
    return parser


def _checks() -> list[Step]:
    return [
        Step("ruff check", [*PYTHON, "ruff", "check", "."]),
        Step("ruff format", [*PYTHON, "ruff", "format", "--check", "."]),
        Step("mypy", [*PYTHON, "mypy"]),
        Step("import-linter", [sys.executable, "-c", IMPORT_LINTER]),
        Step("migrations", [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"]),
    ]


def _on_sqlite(chosen: argparse.Namespace) -> list[Step]:
    """What starts browsers and whole installations comes by itself, and mostly waits."""
    # A person's own selection may hold nothing of the one or of the other part.
    own = bool(chosen.pytest) and not chosen.quick
    beside = QUICK if chosen.quick else _marked(f"not ({HEAVY})", chosen)
    command = [*_side_by_side(), "-m", beside, *chosen.pytest]
    steps = [Step("pytest", command, may_be_empty=own)]
    if not chosen.quick:
        heavy = ["-m", _marked(f"({HEAVY})", chosen), *chosen.pytest]
        command = [*_side_by_side(most=MOST_HEAVY), *heavy]
        steps.append(Step("pytest, whole installations", command, may_be_empty=own))
    return steps


def _marked(tests: str, chosen: argparse.Namespace) -> str:
    """Return the marks of these tests, without those that are left to a run of all."""
    return tests if chosen.all else f"{tests} and not {LONG}"


def _side_by_side(most: int | None = None) -> list[str]:
    num_processes = min(os.cpu_count() or 1, most or os.cpu_count() or 1)
    return [*PYTHON, "pytest", "-n", str(num_processes), "--dist", "loadfile"]


def _on_postgres(chosen: argparse.Namespace, stack: ExitStack) -> list[Step]:
    """The second database, where there is one. With CI set, there has to be."""
    # It needs psycopg, which is here only now.
    from trainops.launch.servers import postgres_server  # noqa: PLC0415

    try:
        url = stack.enter_context(postgres_server())
    except CannotStart as problem:
        if os.environ.get("CI"):
            raise
        print(f"pytest on PostgreSQL is left out: {problem}", flush=True)
        return []
    command = [*_side_by_side(), "-m", _marked("database", chosen), *chosen.pytest]
    env = {"TRAINOPS_DATABASE_URL": url}
    # A person's own selection may hold no test that is marked; our own must.
    return [Step("pytest on PostgreSQL", command, env, may_be_empty=bool(chosen.pytest))]


def _run(step: Step) -> bool:
    print(f"── {step.name}", flush=True)
    started = time.monotonic()
    done = subprocess.run(step.command, cwd=paths.ROOT, env={**os.environ, **step.env}, check=False)
    has_passed = done.returncode == 0 or (step.may_be_empty and done.returncode == NO_TEST)
    verdict = "passed" if has_passed else f"FAILED (exit code {done.returncode})"
    print(f"── {step.name}: {verdict} in {time.monotonic() - started:.1f} s\n", flush=True)
    return has_passed
