"""The one test command, with commands that cost nothing in place of the tools."""

import os
import sys
from pathlib import Path

import pytest

from trainops import paths
from trainops.launch import environment, servers, testing
from trainops.launch.refusal import CannotStart
from trainops.launch.testing import CheckStep


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


@pytest.fixture
def steps(monkeypatch):
    """What would be run, without running it; the environment counts as made."""
    ran: list[CheckStep] = []
    monkeypatch.setattr(environment, "ensure", lambda *_, **__: None)
    monkeypatch.setattr(testing, "_run", lambda step: ran.append(step) or True)
    return ran


def test_each_check_is_named_and_timed_and_its_failure_seen(capfd):
    assert testing._run(CheckStep("fine", python("print('hello')")))
    assert not testing._run(CheckStep("broken", python("raise SystemExit(3)")))
    said = capfd.readouterr().out
    assert "── fine\nhello\n── fine: passed in 0." in said
    assert "── broken: FAILED (exit code 3) in 0." in said


def test_a_step_may_cache_bytecode_and_has_its_own_variables(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import os, sys; raise SystemExit(sys.dont_write_bytecode or os.environ['OWN'] != 'x')"
    assert testing._run(CheckStep("fine", python(code), {"OWN": "x"}))


def test_tests_write_into_memory_where_it_has_room(steps, monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(testing, "_run", lambda _: found.append(os.environ["TMPDIR"]) or True)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(testing, "MEMORY", tmp_path)
    monkeypatch.setattr(testing, "MEMORY_BYTES", 0)
    assert testing.test(["--smoke"]) == 0
    assert {Path(each).parent for each in found} == {tmp_path}
    assert not list(tmp_path.iterdir()) and "TMPDIR" not in os.environ


@pytest.mark.parametrize(
    ("name", "value"),
    [("MEMORY", Path("/nowhere")), ("MEMORY_BYTES", 2**63)],
    ids=["no such file system", "too small"],
)
def test_tests_write_to_the_disk_where_memory_has_no_room(monkeypatch, name, value):
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(testing, name, value)
    with testing._files_in_memory():
        assert "TMPDIR" not in os.environ


def test_a_given_directory_for_temporary_files_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with testing._files_in_memory():
        assert os.environ["TMPDIR"] == str(tmp_path)


def test_every_check_runs_even_when_one_fails(steps, monkeypatch, capsys):
    monkeypatch.setenv("TRAINOPS_TEST_DATABASE_URL", "postgresql://there/mine")
    monkeypatch.setattr(testing, "_run", lambda step: steps.append(step) or step.name != "mypy")
    assert testing.test([]) == 1
    assert [step.name for step in steps] == [
        "ruff check",
        "ruff format",
        "mypy",
        "import-linter",
        "migrations",
        "pytest on PostgreSQL",
        "pytest",
        "pytest, whole installations",
    ]
    assert capsys.readouterr().out == "Failed: mypy\n"


def test_the_second_database_gets_the_marked_tests_only(steps, monkeypatch):
    monkeypatch.setenv("TRAINOPS_TEST_DATABASE_URL", "postgresql://there/mine")
    assert testing.test(["--", "-k", "claim"]) == 0
    on_postgres = next(step for step in steps if step.name == "pytest on PostgreSQL")
    assert on_postgres.env == {"TRAINOPS_DATABASE_URL": "postgresql://there/mine"}
    assert on_postgres.command[-3:] == ["database and not exhaustive", "-k", "claim"]
    assert on_postgres.may_be_empty


def test_the_quick_set_has_one_database(steps, monkeypatch):
    monkeypatch.setenv("TRAINOPS_TEST_DATABASE_URL", "postgresql://there/mine")
    assert testing.test(["--quick", "--", "-k", "claim"]) == 0
    assert [step.name for step in steps if "pytest" in step.name] == ["pytest"]
    assert steps[-1].command[-3:] == [testing.QUICK, "-k", "claim"]
    assert testing.LONG in testing.QUICK
    assert not steps[-1].may_be_empty


def test_files_are_begun_in_the_order_of_the_tests_own_rule(steps, monkeypatch):
    monkeypatch.setenv("TRAINOPS_TEST_DATABASE_URL", "postgresql://there/mine")
    assert testing.test([]) == 0
    assert all("--no-loadscope-reorder" in step.command for step in steps[-3:])


def test_the_smoke_set_is_ruff_and_a_few_files(steps):
    assert testing.test(["--smoke"]) == 0
    assert [step.name for step in steps] == ["ruff check", "pytest"]
    assert all((paths.ROOT / each).is_file() for each in testing.SMOKE)
    assert set(testing.SMOKE) <= set(steps[-1].command)


def test_what_is_exhaustive_runs_only_on_request(steps, monkeypatch):
    monkeypatch.setenv("TRAINOPS_TEST_DATABASE_URL", "postgresql://there/mine")
    assert testing.test([]) == testing.test(["--all"]) == 0
    half = len(steps) // 2
    usual, everything = (
        [step.command[-1] for step in some if step.name.startswith("pytest")]
        for some in (steps[:half], steps[half:])
    )
    assert len(usual) == 3
    assert all(" and not exhaustive" in marks for marks in usual)
    assert usual[1].endswith(f" and not ({testing.ON_POSTGRES})")
    assert everything == ["database", f"not ({testing.HEAVY})", f"({testing.HEAVY})"]


def test_no_test_at_all_is_a_failure_unless_a_person_selected(capfd):
    empty = python("raise SystemExit(5)")
    assert not testing._run(CheckStep("pytest", empty))
    assert testing._run(CheckStep("pytest", empty, may_be_empty=True))
    capfd.readouterr()


def test_a_missing_database_is_said_here_and_a_failure_in_ci(steps, monkeypatch, capsys):
    def none() -> None:
        raise CannotStart("No PostgreSQL was found")

    monkeypatch.setattr(servers, "postgres_server", none)
    monkeypatch.delenv("CI", raising=False)
    assert testing.test([]) == 0
    assert "skipped: No PostgreSQL was found" in capsys.readouterr().out
    assert not any(testing.ON_POSTGRES in part for step in steps for part in step.command)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(CannotStart):
        testing.test([])


@pytest.mark.parametrize("command", [testing.test, testing.bench, testing.chaos])
@pytest.mark.parametrize("argument", ["--help", "--no-such-option"])
def test_help_and_a_wrong_option_install_nothing(monkeypatch, command, argument):
    monkeypatch.setattr(environment, "ensure", lambda *_, **__: pytest.fail("it installs"))
    with pytest.raises(SystemExit) as exited:
        command([argument])
    assert exited.value.code == (0 if argument == "--help" else 2)
