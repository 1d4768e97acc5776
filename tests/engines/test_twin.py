"""The second process of an attempt: it is killed once, and its id is nobody's to kill again."""

import os
import time

import pytest

from trainops.engines import twin


def test_one_that_has_ended_is_not_killed_again(monkeypatch):
    second = twin.fork(lambda wire: time.sleep(60), closing=[])
    second.end()
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
