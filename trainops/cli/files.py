"""What commands on checkpoints do with paths: no server is asked, nothing in a file is executed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Literal, TypedDict

from trainops.cli import looks
from trainops.cli.session import Session
from trainops.cli.tables import Text
from trainops.client.problems import ExitCode, Problem
from trainops.files import packed
from trainops.files.checks import Check, Severity
from trainops.files.differences import differences
from trainops.files.directory import is_checkpoint, newest_healthy
from trainops.files.errors import FormatError
from trainops.files.own import submission_of
from trainops.files.show import show as lines_of
from trainops.files.verify import verify as checks_of
from trainops.files.weights import export_weights
from trainops.plain import JsonObject

RESULTS = {
    Severity.OK: Text("ok", style="green"),
    Severity.WARNING: Text("warning", style="yellow"),
    Severity.FAILED: Text("failed", style="red"),
}


class CheckRow(TypedDict):
    """A check as JSON."""

    name: str
    level: Severity
    passed: bool
    detail: str


def verify(session: Session, path: Path, *, strict: bool) -> None:
    """Show a table of checks. Raises Problem if one failed; if strict, also for a warning."""
    with _raised_as_problem(path):
        report = checks_of(path)
    if session.out.is_data:
        checks = [_row(check) for check in report.checks]
        session.out.data(
            {
                "path": str(path),
                "passed": report.passed,
                "level": report.level,
                "checks": checks,
            }
        )
    else:
        session.out.table(
            ["CHECK", "RESULT", "DETAIL"],
            (
                [looks.cell(check.name), RESULTS[check.level], looks.words(check.detail)]
                for check in report.checks
            ),
            elastic="DETAIL",
        )
    if not report.passed:
        raise Problem(f"{path} must not be used.")
    if strict and report.level is not Severity.OK:
        raise Problem(f"{path} has warnings; --strict treats them as failures.")


def _row(check: Check) -> CheckRow:
    return {
        "name": check.name,
        "level": check.level,
        "passed": check.passed,
        "detail": check.detail,
    }


def sendable(session: Session, directory: Path, scratch: Path) -> tuple[Path, Path]:
    """Return the checkpoint that a directory is, or its newest healthy one, and what to send of it.

    Says which were left. One that is a directory is packed into `scratch`. Raises Problem.
    """
    path = directory
    with _raised_as_problem(directory):
        if not is_checkpoint(directory):
            path, skipped = newest_healthy(directory)
            for each in skipped:
                session.out.note(f"Skipped: {each}")
            session.out.note(f"Taken: {path.name}")
        if not path.is_dir():
            return path, path
        packed.pack(path, packed.names_in(path), scratch / "packed.zip")
    return path, scratch / "packed.zip"


def held(path: Path) -> JsonObject:
    """Return kind and config of the operation whose checkpoint this is; nothing where it has none.

    Raises Problem.
    """
    with _raised_as_problem(path):
        return submission_of(path)


def show(session: Session, path: Path) -> None:
    """Show the tree of keys."""
    with _raised_as_problem(path):
        lines = lines_of(path)
    if session.out.is_data:
        session.out.data([asdict(line) for line in lines])
        return
    session.out.table(
        ["KEY", "TYPE", "SHAPE", "BYTES"],
        (
            [
                Text("  " * line.depth + looks.cell(line.key).plain),
                looks.cell(line.type),
                looks.cell(line.shape),
                looks.cell(f"{line.num_bytes:,}" if line.num_bytes else ""),
            ]
            for line in lines
        ),
    )


def diff(session: Session, one: Path, other: Path) -> None:
    """Show what differs. Raises Problem if anything does."""
    with _raised_as_problem(one, other):
        found = differences(one, other)
    if session.out.is_data:
        session.out.data([asdict(each) for each in found])
    elif found:
        session.out.table(
            ["KEY", "DIFFERENT", "MAX DIFFERENCE"],
            (
                [
                    looks.cell(each.place),
                    looks.cell(each.what),
                    looks.cell("" if each.largest is None else looks.number(each.largest)),
                ]
                for each in found
            ),
        )
    else:
        session.out.note("The checkpoints are identical.")
    if found:
        raise Problem(f"{one} and {other} differ in {len(found)} places.")


def weights(
    session: Session,
    path: Path,
    target: Path,
    which: Literal["best", "last"] | None,
    metric: str | None = None,
) -> None:
    """Write the weights, and say which they are."""
    with _raised_as_problem(path):
        written = export_weights(path, target, which, metric)
    size = target.stat().st_size
    if session.out.is_data:
        names = list(written.tensors)
        session.out.data(
            {"file": str(target), "what": written.what, "bytes": size, "tensors": names}
        )
    else:
        session.out.text(
            f"{target}: {written.what}, {len(written.tensors)} tensors, {looks.size(size)}"
        )


@contextmanager
def _raised_as_problem(*paths: Path) -> Iterator[None]:
    names = " and ".join(map(str, paths))
    try:
        yield
    except FormatError as error:
        raise Problem(f"{names}: {error}") from error
    except FileNotFoundError as error:
        raise Problem(f"{error.filename}: no such file.", ExitCode.NOT_FOUND) from error
    except OSError as error:
        raise Problem(f"{names}: {error.strerror or error}") from error
