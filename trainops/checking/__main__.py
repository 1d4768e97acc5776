"""`python3 -m trainops.checking`: the process of a check, as the command line starts it.

It reads a `RecipeCheck` from stdin and writes messages to stdout: a `RecipeCheckProgress` before
each run, and at the end a `RecipeCheckResult`.
"""

import sys

from trainops.checking.check import CheckFailed, check_recipe
from trainops.messages import MessageReader, encoded
from trainops.process.kinship import die_with
from trainops.recipe_checks import (
    RecipeCheck,
    RecipeCheckAnswer,
    RecipeCheckFailed,
    RecipeCheckProgress,
    RecipeCheckRefused,
    RecipeCheckReport,
    RecipeCheckResult,
)
from trainops.runtime.errors import FieldErrors


def main() -> int:
    """Check, and return the exit code of the process."""
    try:
        request = MessageReader[RecipeCheck](RecipeCheck).read(sys.stdin.buffer.readline())
    except ValueError as error:
        sys.stderr.write(f"trainops.checking: {error}\n")
        return 2
    die_with(request.parent)
    try:
        _write(_result(request))
    except KeyboardInterrupt:
        return 130
    return 0


def _result(request: RecipeCheck) -> RecipeCheckResult:
    try:
        report = check_recipe(
            request.recipe,
            kind=request.kind,
            config=request.config,
            inputs=request.inputs,
            max_steps=request.max_steps,
            max_seconds=request.max_seconds,
            measures_cost=request.measures_cost,
            processes=request.processes,
            tell=lambda text: _write(RecipeCheckProgress(text)),
        )
    except FieldErrors as error:
        return RecipeCheckRefused(error.errors)
    except CheckFailed as error:
        return RecipeCheckFailed(str(error))
    return RecipeCheckReport(report.is_exact, report.to_json(), str(report))


def _write(message: RecipeCheckAnswer) -> None:
    sys.stdout.buffer.write(encoded(message))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
