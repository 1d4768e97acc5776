"""What an attempt's end is called."""

import signal

import pytest

from apps.operations.attempts import outcomes
from apps.operations.attempts.outcomes import Interrupted, MemoryWatch, of_exit
from apps.operations.lifecycle import Reason

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
    assert of_exit(exit_code, memory_ran_out=False) == Interrupted(reason, note)


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
    assert memory.ran_out() == ran_out
