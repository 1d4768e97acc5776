"""The process that checks a recipe, started by `recipes check`."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainops.client.problems import ExitCode, Problem
from trainops.messages import MessageReader, encoded
from trainops.recipe_checks import (
    RecipeCheck,
    RecipeCheckAnswer,
    RecipeCheckFailed,
    RecipeCheckProgress,
    RecipeCheckRefused,
    RecipeCheckReport,
)


def report_of(request: RecipeCheck, note: Callable[[str], None]) -> RecipeCheckReport:
    """Return the report of a new process; `note` receives its progress. Raises Problem."""
    answer: RecipeCheckAnswer | None = None
    with _process(request) as process:
        for line in process.stdout or ():
            answer = _answer(line)
            if isinstance(answer, RecipeCheckProgress):
                note(answer.text)
    match answer:
        case RecipeCheckReport():
            return answer
        case RecipeCheckRefused(fields):
            first, *others = (f"{field}: {problem}" for field, problem in fields.items())
            code = ExitCode.NOT_FOUND if "recipe" in fields else ExitCode.USAGE
            raise Problem(first, code, hints=tuple(others))
        case RecipeCheckFailed(reason):
            first, *others = reason.splitlines()
            raise Problem(first, hints=tuple(others))
    raise Problem("the check ended early")


def _answer(line: bytes) -> RecipeCheckAnswer:
    try:
        return MessageReader[RecipeCheckAnswer](RecipeCheckAnswer).read(line)
    except ValueError as error:
        first, *others = f"the process of the check: {error}".splitlines()
        raise Problem(first, hints=tuple(others)) from error


@contextmanager
def _process(request: RecipeCheck) -> "Iterator[subprocess.Popen[bytes]]":
    """Start the process; at an interrupt, let it end its own processes before this one ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trainops.checking"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # the terminal's Ctrl-C reaches it through this process, once
    )
    with process:
        try:
            if process.stdin is not None:
                process.stdin.write(encoded(request))
                process.stdin.close()
            yield process
        except BaseException:
            process.send_signal(signal.SIGINT)
            raise
