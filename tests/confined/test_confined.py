"""Real processes meet each of their limits, and what started them goes on."""

import os
import time

import psutil
import pytest

from trainops.confined import calling
from trainops.confined.calling import ConfinedProcessFailed, Killed, OutOfMemory, OutOfTime, call
from trainops.confined.limits import Limits

MIB = 2**20
LIMITS = Limits(memory_bytes=200 * MIB, seconds=30, file_bytes=20 * MIB)


def ask(do, limits=LIMITS, **arguments):
    request = {"do": do, "with": arguments}
    return call("tests.confined.programs", request, limits)["answer"]


def test_it_knows_nothing_of_the_environment_but_where_code_is(monkeypatch):
    for name in ("TRAINOPS_SECRET_KEY", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "HOME"):
        monkeypatch.setenv(name, "a secret")
    monkeypatch.setenv("TRAINOPS_RECIPES", "")
    environment = ask("environment")
    assert set(environment) <= {*calling.KEPT, *calling.SET, "LC_CTYPE"}
    assert "TRAINOPS_RECIPES" in environment and "a secret" not in environment.values()


def test_it_has_every_limit_and_comes_after_pages():
    limits = ask("limits")
    assert (limits["CORE"], limits["FSIZE"], limits["NOFILE"]) == (0, 20 * MIB, 256)
    assert limits["CPU"] == 30 * os.cpu_count() and limits["AS"] > 200 * MIB
    assert ask("niceness") >= 10


@pytest.mark.slow
def test_memory_is_counted_from_what_the_program_itself_takes():
    assert ask("take_memory", num_bytes=150 * MIB)["taken"] == 150 * MIB
    with pytest.raises(OutOfMemory, match=f"more than {200 * MIB} bytes"):
        ask("take_memory", num_bytes=201 * MIB)


@pytest.mark.slow
def test_a_file_is_not_longer_than_allowed(tmp_path):
    path = tmp_path / "file"
    ask("write", path=str(path), num_bytes=20 * MIB)
    with pytest.raises(ConfinedProcessFailed):
        ask("write", path=str(path), num_bytes=21 * MIB)
    assert path.stat().st_size <= 20 * MIB


@pytest.mark.slow
def test_what_takes_too_long_is_killed(tmp_path):
    marker = tmp_path / "pid"
    with pytest.raises(OutOfTime, match="longer than 5 seconds"):
        ask("sleep", Limits(200 * MIB, 5, MIB), marker=str(marker))
    assert not psutil.pid_exists(int(marker.read_text()))
    with pytest.raises(OutOfTime):
        ask("spin", Limits(200 * MIB, 2, MIB))


@pytest.mark.parametrize(
    ("do", "error", "words"),
    [("crash", Killed, "signal 11"), ("fail", ConfinedProcessFailed, "what is wrong")],
)
def test_what_breaks_is_reported(do, error, words):
    with pytest.raises(error, match=words):
        ask(do)


def test_what_is_printed_is_no_answer():
    assert ask("talk") == "the answer"


def test_an_answer_without_end_is_not_read(monkeypatch):
    monkeypatch.setattr(calling, "MAX_ANSWER_BYTES", MIB)
    with pytest.raises(ConfinedProcessFailed, match="more than 1048576 bytes"):
        ask("answer_at_length", num_bytes=2 * MIB)


def test_it_ends_with_the_process_that_asked(tmp_path):
    marker = tmp_path / "pid"
    asking = os.fork()
    if asking == 0:
        ask("sleep", marker=str(marker))
        os._exit(0)
    while not (marker.exists() and marker.read_text()):
        time.sleep(0.01)
    os.kill(asking, 9)
    os.waitpid(asking, 0)
    process = int(marker.read_text())
    while psutil.pid_exists(process) and psutil.Process(process).status() != "zombie":
        time.sleep(0.01)
