"""What an attempt's end is called."""

import signal

import pytest

from apps.operations.attempts import outcomes
from apps.operations.attempts.outcomes import Interrupted, MemoryWatch, of_exit, of_message
from apps.operations.lifecycle import Reason
from trainops.process.protocol import Failed

EXITED = (
    "the program exited with code {}: the recipe, or a library that it uses, ended the process "
    "(such as os._exit or sys.exit) before the operation was done"
)


@pytest.mark.parametrize(
    ("exit_code", "reason", "note"),
    [
        (-signal.SIGKILL, Reason.PROCESS_KILLED, "its process ended by SIGKILL"),
        (-37, Reason.PLATFORM_ERROR, "its process ended by signal 37"),  # SIGRTMIN + 3 has no name
        (70, Reason.PLATFORM_ERROR, "its process ended with exit code 70"),
        (75, Reason.LEASE_LOST, "its process ended with exit code 75"),
        (3, Reason.PROCESS_EXITED, EXITED.format(3)),
        (0, Reason.PROCESS_EXITED, EXITED.format(0)),
    ],
)
def test_a_death_without_a_word_is_reported(exit_code, reason, note):
    assert of_exit(exit_code, memory_ran_out="") == Interrupted(reason, note)


@pytest.mark.parametrize(
    ("of_the_second", "of_others", "ran_out"), [(0, 0, False), (1, 0, False), (1, 1, True)]
)
def test_one_kill_is_that_of_the_second_process_and_another_is_not(
    monkeypatch, of_the_second, of_others, ran_out
):
    """The kernel may kill both, one right after the other, before either is heard of."""
    num_kills = 7
    monkeypatch.setattr(outcomes, "_num_oom_kills", lambda: num_kills)
    memory = MemoryWatch()
    num_kills += of_the_second + of_others
    memory.second_died()
    assert bool(memory.ran_out()) == ran_out


@pytest.fixture
def counters(tmp_path, monkeypatch):
    """Return what writes the counters of kills: of this worker's cgroup, and of the machine."""
    monkeypatch.setattr(outcomes, "CGROUPS", tmp_path)
    monkeypatch.setattr(outcomes, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(outcomes, "VMSTAT", tmp_path / "vmstat")
    (tmp_path / "own").write_text("4:memory:/old\n0::/workers/one\n")

    def write(of_machine, of_worker=None):
        (tmp_path / "vmstat").write_text(f"pgfault 9\noom_kill {of_machine}\n")
        if of_worker is not None:
            (tmp_path / "workers/one").mkdir(parents=True, exist_ok=True)
            events = f"max 7\noom 3\noom_kill {of_worker}\noom_group_kill 0\n"
            (tmp_path / "workers/one/memory.events").write_text(events)

    return write


def test_a_kill_of_another_cgroup_does_not_explain_that_of_an_attempt(counters):
    counters(of_machine=3, of_worker=1)
    watch = MemoryWatch()
    counters(of_machine=4, of_worker=1)
    assert not watch.ran_out()
    ended = of_exit(-signal.SIGKILL, memory_ran_out=watch.ran_out())
    assert ended.reason is Reason.PROCESS_KILLED
    counters(of_machine=5, of_worker=2)
    ended = of_exit(-signal.SIGKILL, memory_ran_out=watch.ran_out())
    assert ended.reason is Reason.OUT_OF_MEMORY
    what = "the kernel killed processes for memory of this worker meanwhile"
    assert ended.note == f"its process ended by SIGKILL; {what}"


def test_without_counters_of_a_cgroup_those_of_the_machine_are_named(counters):
    counters(of_machine=3)
    watch = MemoryWatch()
    assert not watch.ran_out()
    counters(of_machine=4)
    what = "the kernel killed processes for memory on this machine meanwhile"
    assert watch.ran_out() == what
    failed = Failed("PROCESS_KILLED", "rank 1 ended by SIGKILL", "")
    ended = of_message(failed, is_asked=False, is_out_of_time=False, memory_ran_out=what)
    assert ended.reason is Reason.OUT_OF_MEMORY
    assert ended.note == ended.error["message"] == f"rank 1 ended by SIGKILL; {what}"
