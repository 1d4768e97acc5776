"""The supervisor, with real processes: tiny Python programs that behave well or badly."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainops.launch import guard
from trainops.launch.program import Program, descendants
from trainops.launch.program_runner import Backoff, ProgramRunner
from trainops.launch.tail import Tail

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SOON = 8.0
SLEEP = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"

# Runs a supervisor in a process of its own, as `up` does: python -c HARNESS LOG_DIR PROGRAMS.
HARNESS = """
import sys
from pathlib import Path
from trainops.launch.program import Program
from trainops.launch.program_runner import Backoff, ProgramRunner

def say(name, text):
    print(f"{name}: {text}", flush=True)

def program(name, code, start, stop, seconds, may_end=False):
    return Program(name, [sys.executable, "-S", "-c", code], start_stage=start, stop_stage=stop,
                   stop_seconds=seconds, may_end=may_end)

programs = [program(*each) for each in eval(sys.argv[2])]
after = {programs[-1].start_stage: lambda: print("all: ready", flush=True)}
sys.exit(ProgramRunner(programs, Path(sys.argv[1]), say, after, Backoff(0.05, 0.4, 60)).run())
"""


class Harness:
    """A supervisor process, what it said so far, and what it runs."""

    def __init__(self, log_dir: Path, programs: list[tuple[str, str, int, int, float]]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HARNESS, str(log_dir), repr(programs)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.said.extend(line.rstrip() for line in lines)

    def await_said(self, text: str, times: int = 1) -> None:
        await_true(lambda: sum(text in line for line in self.said) >= times, lambda: self.said)

    def end(self) -> int:
        code = self.process.wait(timeout=SOON)
        self._reader.join(timeout=SOON)
        return code


def await_true(condition: Callable[[], bool], describe: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    started: list[Harness] = []

    def begin(*programs: tuple[str, str, int, int, float]) -> Harness:
        started.append(Harness(tmp_path / "log", list(programs)))
        return started[-1]

    yield begin
    for harness in started:
        if harness.process.poll() is None:
            harness.process.kill()
        harness.end()


def test_a_program_that_dies_is_started_again_with_growing_pauses(start, tmp_path):
    harness = start(("flaky", "print('no luck'); raise SystemExit(3)", 0, 0, 1.0))
    harness.await_said("ended with exit code 3 (no luck); restarting", times=4)
    pauses = [line.rsplit(" in ", 1)[1] for line in harness.said if "restarting" in line]
    assert pauses[:4] == ["0.05 s", "0.1 s", "0.2 s", "0.4 s"]
    harness.process.terminate()
    assert harness.end() == 0
    assert (tmp_path / "log" / "flaky.log").read_text().count("no luck") >= 4


def test_programs_that_may_end_end_the_run_and_failures_of_them_are_restarted(start, tmp_path):
    flag = tmp_path / "failed"
    once = f"import os, pathlib; f = pathlib.Path({str(flag)!r}); n = f.exists(); f.touch()"
    once += "; os._exit(not n)"
    harness = start(("first", "", 0, 0, 1.0, True), ("second", once, 0, 0, 1.0, True))
    harness.await_said("first: has ended")
    harness.await_said("second: ended with exit code 1; restarting")
    harness.await_said("second: has ended")
    assert harness.end() == 0


def test_what_dies_of_a_signal_without_a_name_is_started_again_too(start):
    code = "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)"
    harness = start(("struck", code, 0, 0, 1.0))
    harness.await_said("killed by signal 37; restarting", times=2)
    harness.process.terminate()
    assert harness.end() == 0


def test_a_pause_is_bounded_and_forgotten_after_a_long_life():
    backoff = Backoff()
    assert [backoff.delay(number) for number in (1, 2, 5, 6, 99)] == [1, 2, 16, 30, 30]
    assert (backoff.num_failures(0, 5), backoff.num_failures(6, 5)) == (1, 7)
    assert backoff.num_failures(6, 60) == 1


def test_stages_start_in_order_and_stop_in_their_own_order(start, tmp_path):
    says = "import signal, sys, time, pathlib\nout = pathlib.Path({path!r})\n" + textwrap.dedent("""
        def note(word): out.open("a").write(word + "\\n")
        def stop(*_): time.sleep(0.05); note("-{name}"); sys.exit(0)
        signal.signal(signal.SIGTERM, stop)
        note("+{name}"); time.sleep(60)
    """)
    path = tmp_path / "order"

    def code(name: str) -> str:
        return says.format(path=str(path), name=name)

    # start: store, then web; stop: web first, then store
    harness = start(("store", code("store"), 0, 1, 5.0), ("web", code("web"), 1, 0, 5.0))
    await_true(
        lambda: path.exists() and "+web" in path.read_text() and "+store" in path.read_text()
    )
    harness.process.send_signal(signal.SIGINT)
    assert harness.end() == 0
    assert path.read_text().split()[-2:] == ["-web", "-store"]
    assert [line for line in harness.said if "stopping" in line] == [
        "web: stopping",
        "store: stopping",
    ]


def test_the_next_stage_waits_until_the_one_before_is_ready(tmp_path):
    flag, order = tmp_path / "flag", []
    programs = [
        Program(
            "store",
            [sys.executable, "-S", "-c", f"open({str(flag)!r}, 'w'); {SLEEP}"],
            is_ready=flag.exists,
        ),
        Program("web", [sys.executable, "-S", "-c", SLEEP], start_stage=1),
    ]

    def finish() -> None:
        order.append("web")
        os.kill(os.getpid(), signal.SIGTERM)

    def between() -> None:
        assert flag.exists()
        order.append("store")

    supervisor = ProgramRunner(programs, tmp_path, lambda *_: None, {0: between, 1: finish})
    assert supervisor.run() == 0
    assert order == ["store", "web"]


def test_what_fails_between_stages_stops_everything(tmp_path):
    program = Program("store", [sys.executable, "-S", "-c", SLEEP])

    def fail() -> None:
        raise ValueError("no database")

    before = set(descendants(os.getpid()))
    with pytest.raises(ValueError, match="no database"):
        ProgramRunner([program], tmp_path, lambda *_: None, {0: fail}).run()
    assert set(descendants(os.getpid())) <= before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_signal_forces(start):
    harness = start(("deaf", DEAF, 0, 0, 60.0))
    harness.await_said("all: ready")
    time.sleep(0.3)  # until it has made itself deaf
    below = descendants(harness.process.pid)
    harness.process.send_signal(signal.SIGINT)
    harness.await_said("deaf: stopping")
    harness.process.send_signal(signal.SIGINT)  # the same keypress, delivered twice
    time.sleep(0.7)
    assert harness.process.poll() is None
    harness.process.send_signal(signal.SIGINT)
    assert harness.end() == 1
    assert not any(is_running(pid) for pid in below)


def test_a_program_that_does_not_stop_in_time_is_killed_with_its_children(start):
    nested = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}], start_new_session=True)\n"
    )
    harness = start(("deaf", nested + DEAF, 0, 0, 0.3))
    harness.await_said("all: ready")
    await_true(lambda: len(descendants(harness.process.pid)) == 3)  # guard, deaf, its child
    time.sleep(0.3)
    below = descendants(harness.process.pid)
    harness.process.terminate()
    assert harness.end() == 0
    assert "deaf: did not stop in time; killing it" in harness.said
    assert not any(is_running(pid) for pid in below)


def test_a_program_leaves_no_children_behind_when_it_dies(start, tmp_path):
    pid_file = tmp_path / "pid"
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(0.2); os._exit(1)"
    )
    harness = start(("server", code, 0, 0, 1.0))
    harness.await_said("ended with exit code 1")
    first = int(pid_file.read_text())
    await_true(lambda: not is_running(first))


def test_killing_the_supervisor_ends_what_it_started(start):
    harness = start(("one", SLEEP, 0, 0, 1.0), ("two", SLEEP, 0, 0, 1.0))
    harness.await_said("all: ready")
    below = descendants(harness.process.pid)
    assert len(below) == 3  # two programs and the guard
    harness.process.kill()
    await_true(lambda: not any(is_running(pid) for pid in below))


def test_the_guard_ends_groups_that_will_not_listen():
    deaf = subprocess.Popen([sys.executable, "-S", "-c", DEAF], start_new_session=True)
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""], start_new_session=True)
    gone.wait()
    time.sleep(0.3)
    script = [sys.executable, "-I", "-S", guard.__file__, "0.2"]
    names = f"+{deaf.pid}\n+{gone.pid}\n-{gone.pid}\n"
    subprocess.run(script, input=names, text=True, check=True, timeout=SOON)
    assert deaf.wait(timeout=SOON) == -signal.SIGKILL


def test_a_program_that_cannot_be_started_is_tried_again(tmp_path):
    said: list[str] = []

    def say(name: str | None, text: str) -> None:
        said.append(text)
        if len(said) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    programs = [Program("lost", [str(tmp_path / "nowhere")])]
    assert ProgramRunner(programs, tmp_path, say, backoff=Backoff(0.01, 0.02, 1)).run() == 0
    assert all("No such file" in line and "restarting" in line for line in said[:2])


def test_the_terminal_shows_warnings_once_and_counts_the_rest(tmp_path):
    log = tmp_path / "web.log"
    log.write_text("ERROR from an earlier run\n")
    tail = Tail(log, Program("web", []).notable)
    with log.open("a") as file:
        file.write("INFO quiet\n12:00:01 ERROR broken\n12:00:02 ERROR broken\nhalf a li")
    assert list(tail.notable_lines()) == ["12:00:01 ERROR broken"]
    with log.open("a") as file:
        file.write("ne with an ERROR\n")
        file.writelines(f"ERROR {letter}\n" for letter in "abcdefg")
    shown = list(tail.notable_lines())
    assert shown[0] == "half a line with an ERROR"
    assert shown[-1] == f"… and 3 more such lines in {log}"
    assert tail.last_line == "ERROR g"
    tail.close()


def test_a_log_that_has_grown_too_large_is_set_aside_while_it_is_written(tmp_path):
    log = tmp_path / "web.log"
    with log.open("ab") as program:
        tail = Tail(log, Program("web", []).notable, most_bytes=1000)
        program.write(b"x" * 2000 + b"\n")
        program.flush()
        assert not list(tail.notable_lines())
        program.write(b"ERROR after\n")
        program.flush()
        assert list(tail.notable_lines()) == ["ERROR after"]
    tail.close()
    assert log.read_text() == "ERROR after\n"
    assert log.with_suffix(".log.1").stat().st_size == 2001
