"""The quick parser gives commands the values that Typer gives them, or leaves a line to Typer."""

import inspect
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import ROOT
from trainops.cli import main, quick
from trainops.cli.app import build

PLAIN = [
    ["ls"],
    ["ls", "val_loss<0.1 older:7d", "kind:x"],
    ["ls", "--state", "failed", "--mine", "--limit", "3", "-o", "json", "-q"],
    ["ls", "--sort=-val_accuracy", "--attention", "--resumable", "--fields", "name,state"],
    ["ls", "--search=a=b", "--tag", "", "--url", "http://x", "--token", "t", "--context", "lab"],
    ["show", "c0ffee", "--output", "yaml"],
    ["show", "--output=csv", "c0ffee"],
    ["events", "c0ffee", "--limit", "500"],
    ["stats"],
    ["stats", "-o", "json"],
]
LEFT_TO_TYPER = [
    ["ls", "--help"],
    ["ls", "--limit", "0"],
    ["ls", "--limit", "x"],
    ["ls", "--limit", "٣"],
    ["ls", "--limit", "+3"],
    ["ls", "--limit"],
    ["ls", "-ojson"],
    ["ls", "-o", "xml"],
    ["ls", "--sort", "-val_accuracy"],
    ["ls", "--mine=yes"],
    ["ls", "--state", "a", "--state", "b"],
    ["ls", "--", "-tag:x"],
    ["ls", "-tag:x"],
    ["ls", "--sta", "failed"],
    ["show"],
    ["show", "a", "b"],
    ["stats", "more"],
    ["events", "c0ffee", "--limit", "501"],
]


def by_typer(arguments: list[str]) -> Any:
    """Return the values that Typer parses; None where it refuses them."""
    app = build(arguments[0])
    (info,) = (each for each in app.registered_commands if each.name == arguments[0])
    found: list[dict[str, object]] = []

    def record(**values: object) -> None:
        found.append(values)

    record.__signature__ = inspect.signature(info.callback)
    info.callback = record
    CliRunner().invoke(app, arguments)
    return found[0] if found else None


def by_itself(arguments: list[str]) -> Any:
    app = build(arguments[0])
    (info,) = (each for each in app.registered_commands if each.name == arguments[0])
    return quick.parsed(inspect.signature(info.callback).parameters, arguments[1:])


@pytest.mark.parametrize("arguments", PLAIN, ids=" ".join)
def test_a_plain_line_has_the_values_of_typer(arguments):
    assert by_itself(arguments) == by_typer(arguments)


@pytest.mark.parametrize("arguments", LEFT_TO_TYPER, ids=" ".join)
def test_any_other_line_is_left_to_typer(arguments):
    with pytest.raises(quick.NotPlain):
        by_itself(arguments)


def test_a_command_runs_and_exits_with_its_code(cli, capsys):
    with pytest.raises(SystemExit) as left:
        main(["ls", "-o", "json"])
    assert (left.value.code, capsys.readouterr().out) == (0, "[]\n")
    with pytest.raises(SystemExit) as left:
        main(["show", "none"])
    assert left.value.code == 3
    assert "No operation matches 'none'" in capsys.readouterr().err


def test_a_listing_does_not_load_pydantic():
    program = """
import sys
from trainops.cli import main
try:
    main(["ls", "--url", "http://127.0.0.1:1", "-q"])
except SystemExit as left:
    heavy = {"httpx", "rich", "yaml", "asyncio", "django", "pydantic"} & set(sys.modules)
    sys.exit(f"loaded: {heavy}" if heavy or left.code != 1 else 0)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
