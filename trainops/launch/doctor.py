"""`python3 -m trainops doctor`: what is misconfigured here, and what to do about it."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from trainops import paths
from trainops.launch import checks, embedded, environment, installation
from trainops.launch.refusal import CannotStart

DESCRIPTION = """\
Check the installation of this data directory, from this machine: database, migrations, broker,
storages, disk space, clocks, limits, web settings, workers, notifications, CUDA.
"""
EPILOG = "Exit codes: 0 no problem (warnings are allowed), 1 a problem, 2 nothing could be checked."
SIGNS = {"ok": "ok     ", "warning": "WARNING", "problem": "PROBLEM"}


def doctor(arguments: Sequence[str]) -> int:
    """Print each finding with its remedy. Raises CannotStart where nothing can be checked."""
    chosen = _parser().parse_args(arguments)
    environment.require(["doctor", *arguments])
    directory = chosen.data_dir.expanduser().resolve()
    databases = (directory / "trainops.sqlite3", directory / "postgres")
    if not os.environ.get("TRAINOPS_DATABASE_URL") and not any(map(Path.exists, databases)):
        raise CannotStart(f"There is no installation in {directory} (--data-dir).")
    os.umask(checks.umask())
    results = _diagnose(directory)
    if chosen.output == "json":
        print(json.dumps(results, indent=2))
    else:
        _print(results)
    return int(any(each["level"] == "problem" for each in results))


def _diagnose(directory: Path) -> list[dict[str, str]]:
    os.environ["TRAINOPS_DATA_DIR"] = str(directory)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trainops.settings")
    os.environ.setdefault("TRAINOPS_LOG_LEVEL", "CRITICAL")  # the findings say it
    _name_embedded_services(directory)
    django: Any = import_module("django")
    try:
        django.setup()
    except Exception as error:  # a setting is refused, and says why
        said = "; ".join(_messages(error))
        raise CannotStart(f"The settings are refused: {said}") from error
    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    diagnosis: Any = import_module("apps.workers.diagnosis")
    return [each.to_json() for each in diagnosis.diagnose()]


def _messages(error: Exception) -> list[str]:
    errors = getattr(error, "errors", None)
    if callable(errors):
        return [str(each["msg"]).removeprefix("Value error, ") for each in errors()]
    return [str(error).strip().partition("\n")[0] or type(error).__name__]


def _name_embedded_services(directory: Path) -> None:
    installation.name_database(directory)
    redis = embedded.socket_directory(directory) / "redis.sock"
    os.environ.setdefault("TRAINOPS_BROKER_URL", embedded.redis_url(redis))


def _print(results: Iterable[dict[str, str]]) -> None:
    for each in results:
        print(f"{SIGNS[each['level']]}  {each['check']:<16} {each['message']}")
        if each["remedy"]:
            print(f"{'':<26} -> {each['remedy']}")
    found = [each["level"] for each in results]
    problems, warnings = found.count("problem"), found.count("warning")
    print(f"\n{problems} problems, {warnings} warnings", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{paths.COMMAND} doctor",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = paths.data_dir()
    parser.add_argument(
        "--data-dir", type=Path, default=default, help=f"data directory (default: {default})"
    )
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="form (default: text)"
    )
    return parser
