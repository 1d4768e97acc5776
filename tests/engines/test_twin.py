"""The second process of an attempt: it is killed once, and its id is nobody's to kill again."""

import os
import signal
import time

import pytest

from tests.waiting import wait_until
from trainops.process import twin


def test_one_that_has_ended_is_not_killed_again(monkeypatch):
    second = twin.fork(lambda wire: time.sleep(60), closing=[])
    second.end()
    killed = []
    monkeypatch.setattr(os, "kill", lambda *signalled: killed.append(signalled))
    second.end()
    assert not killed


def test_a_death_is_noticed_without_waiting_and_it_is_not_killed_again(monkeypatch):
    second = twin.fork(lambda wire: time.sleep(60), closing=[])
    assert not second.has_died()
    os.kill(second.pid, signal.SIGKILL)
    wait_until(second.has_died)
    killed = []
    monkeypatch.setattr(os, "kill", lambda *signalled: killed.append(signalled))
    second.end()
    assert not killed


def test_the_end_of_an_answer_is_its_end(monkeypatch):
    second = twin.fork(lambda wire: None, closing=[])
    with pytest.raises(twin.TwinFailed, match=twin.DIED):
        second.answer(10.0)
    killed = []
    monkeypatch.setattr(os, "kill", lambda *signalled: killed.append(signalled))
    second.end()
    assert not killed
