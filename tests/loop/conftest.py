"""Attempts of a generator function, without a recipe of its own."""

from itertools import count

import pytest

from tests.engines.contract import Case, ScriptedSupervisor, attempt, require_same_end
from trainops.runtime.loop import Failed

SCRIPT = Case("loop", "script", {"recipe": "digits_loop", "log_every_steps": 2}, ())


@pytest.fixture
def follow(monkeypatch, tmp_path):
    """Run an attempt of a generator function; return its supervisor, and its error if it fails."""
    roots = count()

    def run(train, *, resume=(), at=None, number=1, **config):
        monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: train)
        supervisor = ScriptedSupervisor(at=at)
        root = tmp_path / str(next(roots))
        outcome = attempt(SCRIPT, root, supervisor, resume=resume, number=number, **config)
        if isinstance(outcome, Failed):
            raise outcome.error
        return supervisor

    return run


@pytest.fixture
def require_exact(follow):
    """Stop a generator function at these steps (by default at each) and resume it.

    Return the undisturbed run, which the end and the curve of each must equal.
    """

    def require(train, stops=None):
        expected = follow(train)
        steps = range(1, expected.progress[-1].step)
        for at in steps if stops is None else stops:
            first = follow(train, at=at)
            second = follow(train, resume=first.checkpoints, number=2)
            assert all(receipt.exact for receipt in second.receipts)
            require_same_end(expected, [first, second])
        return expected

    return require
