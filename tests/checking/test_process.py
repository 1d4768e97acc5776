"""The process of `recipes check`, and the messages that it exchanges with the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainops.cli import check_process
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

REQUEST = RecipeCheck(
    1, "digits", None, {"parameters": {"lr": 0.1}}, {"ds_1": Path("/x.parquet")}, 60, 8.0, True
)
REPORT = RecipeCheckReport(True, {"exact": True, "runs": []}, "Exact")


class Process:
    """A process that answers with these lines."""

    def __init__(self, lines):
        self.stdin, self.stdout = None, lines
        self.signals = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def send_signal(self, number):
        self.signals.append(number)


@pytest.fixture
def answering(monkeypatch):
    def answer(*lines):
        process = Process(lines)
        monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
        return process

    return answer


@pytest.mark.parametrize("message", [REPORT, RecipeCheckProgress("a"), RecipeCheckFailed("b\nc")])
def test_an_answer_arrives_as_an_equal_object(message):
    assert MessageReader(RecipeCheckAnswer).read(encoded(message)) == message


def test_a_request_arrives_as_an_equal_object():
    assert MessageReader(RecipeCheck).read(encoded(REQUEST)) == REQUEST


def test_the_report_is_returned_and_progress_is_passed_on(answering):
    answering(encoded(RecipeCheckProgress("first run")), encoded(REPORT))
    notes = []
    assert check_process.report_of(REQUEST, notes.append) == REPORT
    assert notes == ["first run"]


@pytest.mark.parametrize(
    ("answer", "problem", "code", "hints"),
    [
        (RecipeCheckFailed("it broke\nhere"), "it broke", ExitCode.FAILED, ("here",)),
        (RecipeCheckRefused({"recipe": "gone"}), "recipe: gone", ExitCode.NOT_FOUND, ()),
        (RecipeCheckRefused({"a": "b", "c": "d"}), "a: b", ExitCode.USAGE, ("c: d",)),
        (RecipeCheckProgress("first run"), "the check ended early", ExitCode.FAILED, ()),
    ],
)
def test_a_check_without_a_report_is_a_problem(answering, answer, problem, code, hints):
    answering(encoded(answer))
    with pytest.raises(Problem) as raised:
        check_process.report_of(REQUEST, lambda text: None)
    assert (str(raised.value), raised.value.exit_code, raised.value.hints) == (problem, code, hints)


def test_a_line_that_is_no_message_ends_the_check_and_is_quoted(answering):
    process = answering(b"a print of a recipe\n")
    with pytest.raises(Problem, match="got a message b'a'; allowed: RecipeCheckProgress, "):
        check_process.report_of(REQUEST, lambda text: None)
    assert process.signals


@pytest.mark.slow
def test_the_process_refuses_a_request_that_is_none():
    ran = subprocess.run(
        [sys.executable, "-m", "trainops.checking"], input=b"{}\n", capture_output=True, check=False
    )
    assert ran.returncode == 2 and not ran.stdout
    assert ran.stderr == b"trainops.checking: got a message b'{}\\n'; allowed: RecipeCheck\n"
