"""What an attempt's end is called."""

import signal

import pytest

from apps.operations.ending import Interrupted, of_exit
from apps.operations.lifecycle import Reason


@pytest.mark.parametrize(
    ("exit_code", "reason", "note"),
    [
        (-signal.SIGKILL, Reason.PROCESS_KILLED, "its process ended by SIGKILL"),
        (-37, Reason.HOUSE_ERROR, "its process ended by signal 37"),  # SIGRTMIN + 3 has no name
        (3, Reason.HOUSE_ERROR, "its process ended by exit code 3"),
    ],
)
def test_a_death_without_a_word_is_told(exit_code, reason, note):
    assert of_exit(exit_code, memory_ran_out=False) == Interrupted(reason, note)
