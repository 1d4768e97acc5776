"""`python3 -m trainops.checking`: the process of a check, as the command line starts it.

It reads a request as JSON from stdin and writes lines of JSON: {"progress": TEXT} before each run,
and at the end {"report": {...}, "text": TEXT}, {"fields": {FIELD: PROBLEM}} or {"failed": TEXT}.
"""

import json
import sys
from pathlib import Path

from trainops.checking.check import CheckFailed, check_recipe
from trainops.process.kinship import die_with
from trainops.runtime.errors import FieldErrors


def main() -> int:
    """Check, and return the exit code of the process."""
    request = json.load(sys.stdin)
    die_with(request["parent"])
    try:
        report = check_recipe(
            request["recipe"],
            kind=request["kind"],
            config=request["config"],
            inputs={name: Path(path) for name, path in request["inputs"].items()},
            max_steps=request["max_steps"],
            max_seconds=request["max_seconds"],
            measures_cost=request["measures_cost"],
            tell=lambda text: _write({"progress": text}),
        )
    except FieldErrors as error:
        _write({"fields": error.errors})
    except CheckFailed as error:
        _write({"failed": str(error)})
    except KeyboardInterrupt:
        return 130
    else:
        _write({"report": report.to_json(), "text": str(report)})
    return 0


def _write(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
