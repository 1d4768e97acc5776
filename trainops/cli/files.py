"""What commands on checkpoints do with paths: no server is asked, nothing in a file is executed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from rich.text import Text

from trainops.cli import looks
from trainops.cli.problems import ExitCode, Problem
from trainops.cli.session import Session
from trainops.formats.differences import differences
from trainops.formats.directory import newest_healthy
from trainops.formats.errors import FormatError
from trainops.formats.show import show as lines_of
from trainops.formats.verify import verify as checks_of
from trainops.formats.weights import export_weights

RESULTS = {True: Text("passed", style="green"), False: Text("failed", style="red")}


def verify(session: Session, path: Path) -> None:
    """Show a table of checks. Raises Problem if one failed."""
    with _told_as_problem(path):
        report = checks_of(path)
    if session.out.is_json:
        checks = [asdict(check) for check in report.checks]
        session.out.json({"path": str(path), "passed": report.passed, "checks": checks})
    else:
        session.out.table(
            ["CHECK", "RESULT", "DETAIL"],
            (
                [looks.cell(check.name), RESULTS[check.passed], looks.words(check.detail)]
                for check in report.checks
            ),
            elastic="DETAIL",
        )
    if not report.passed:
        raise Problem(f"{path} must not be used.")


def newest(session: Session, directory: Path) -> Path:
    """Return the newest healthy file of a directory, and say which were left. Raises Problem."""
    with _told_as_problem(directory):
        path, skipped = newest_healthy(directory)
    for each in skipped:
        session.out.note(f"Left out {each}")
    session.out.note(f"Taken: {path.name}")
    return path


def show(session: Session, path: Path) -> None:
    """Show the tree of keys."""
    with _told_as_problem(path):
        lines = lines_of(path)
    if session.out.is_json:
        session.out.json([asdict(line) for line in lines])
        return
    session.out.table(
        ["KEY", "TYPE", "SHAPE", "BYTES"],
        (
            [
                Text("  " * line.depth) + looks.cell(line.key),
                looks.cell(line.type),
                looks.cell(line.shape),
                looks.cell(f"{line.num_bytes:,}" if line.num_bytes else ""),
            ]
            for line in lines
        ),
    )


def diff(session: Session, one: Path, other: Path) -> None:
    """Show what differs. Raises Problem if anything does."""
    with _told_as_problem(one, other):
        found = differences(one, other)
    if session.out.is_json:
        session.out.json([asdict(each) for each in found])
    elif found:
        session.out.table(
            ["KEY", "DIFFERENT", "AT MOST BY"],
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
        session.out.note("They are the same.")
    if found:
        raise Problem(f"{one} and {other} differ in {len(found)} places.")


def weights(
    session: Session, path: Path, target: Path, which: Literal["best", "last"] | None
) -> None:
    """Write the weights, and say which they are."""
    with _told_as_problem(path):
        written = export_weights(path, target, which)
    size = target.stat().st_size
    if session.out.is_json:
        names = list(written.tensors)
        session.out.json(
            {"file": str(target), "what": written.what, "bytes": size, "tensors": names}
        )
    else:
        session.out.text(
            f"{target}: {written.what}, {len(written.tensors)} tensors, {looks.size(size)}"
        )


@contextmanager
def _told_as_problem(*paths: Path) -> Iterator[None]:
    names = " and ".join(map(str, paths))
    try:
        yield
    except FormatError as error:
        raise Problem(f"{names}: {error}") from error
    except FileNotFoundError as error:
        raise Problem(f"{error.filename}: there is no such file.", ExitCode.NOT_FOUND) from error
    except OSError as error:
        raise Problem(f"{names}: {error.strerror or error}") from error
