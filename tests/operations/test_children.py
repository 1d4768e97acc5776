"""A child that does not end at once is killed until it is gone."""

import os

from apps.operations.attempts.children import Child


class Stubborn(Child):
    """A child that is gone after ten kills."""

    kills, waits = 0, ()

    def kill(self):
        self.kills += 1

    def wait(self, seconds):
        self.waits = (*self.waits, seconds)
        return self.kills == 10


def test_kills_are_repeated_after_growing_waits_and_the_longest_are_logged(caplog):
    child = Stubborn(os.getpid(), wire=None, output=0)
    child.end()
    assert child.waits == (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0)
    assert caplog.messages == [f"process group {os.getpid()} does not go away"] * 2
