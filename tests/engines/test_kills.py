"""A child that is killed at any moment of a save leaves whole checkpoints, or what never counts.

Real children, forked from a real forkserver, with this test as their supervisor.
"""

import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from apps.operations.attempts.children import ForkServer
from tests.engines.contract import Curve
from tests.engines.moments import DIES_AT, MOMENTS
from tests.points import reproduced
from tests.waiting import wait_until
from trainops.kind import KINDS
from trainops.process.protocol import (
    Committed,
    Failed,
    ProgressUpdate,
    Restored,
    Staged,
    Start,
    Stopped,
    now,
)
from trainops.process.wire import Hangup
from trainops.runtime.checkpoint.manifest import (
    MANIFEST,
    Candidate,
    Checkpoint,
    CheckpointType,
    verify,
)

pytestmark = pytest.mark.slow
TOY = {"recipe": "toy", "batch_size": 8, "epochs": 3, "log_every_steps": 2, "seed": 7}


@dataclass
class Runs:
    """Runs attempts of one operation, and keeps what they said and committed."""

    forkserver: ForkServer
    root: Path
    every_steps: int | None
    committed: list[Checkpoint] = field(default_factory=list)
    curve: Curve = field(default_factory=dict)
    num_attempts: int = 0
    from_steps: list[int] = field(default_factory=list)  # of each attempt

    def attempt(self, dies_at: str = "") -> int | None:
        """Run one attempt to its end; return its exit code."""
        self.num_attempts += 1
        child = self.forkserver.start(f"attempt-{self.num_attempts}")
        try:
            child.wire.send(self._start({DIES_AT: dies_at}))
            while True:
                for message in child.wire.read():
                    self._hear(child, message)
        except Hangup:
            assert child.wait(10)
            return child.exit_code
        finally:
            child.end()
            child.close()

    def _start(self, environment):
        raw = TOY | {"checkpoint": {"every_steps": self.every_steps, "every_seconds": 1e9}}
        config = KINDS["training"].parse_config(raw)
        return Start(
            kind="training",
            config=config.model_dump(),
            inputs={},
            reserve_bytes=0,
            storage_id="",
            directory=self.root,
            operation_id="op",
            attempt=self.num_attempts,
            config_hash="",
            input_digests={},
            has_self_check=config.checkpoint.self_check,
            candidates=tuple(Candidate(each.path, each.digest) for each in self.committed[::-1]),
            grant_until=now() + 60,
            environment=environment,
        )

    def _hear(self, child, message):
        match message:
            case Restored(receipt=receipt):
                self.from_steps.append(receipt.step)
                assert receipt.exact
            case ProgressUpdate(points=points):
                for step, values in reproduced(points):
                    assert self.curve.setdefault(step, values) == values, step
            case Staged(checkpoint=staged):
                self.committed.append(verify(self.root / staged.directory, staged.digest))
                with suppress(Hangup):  # it died at once; its earlier messages stand
                    child.wire.send(Committed())
            case Stopped() | Failed():
                raise AssertionError(message)


@pytest.fixture(scope="module")
def forkserver():
    forkserver = ForkServer()
    forkserver.open()
    wait_until(lambda: forkserver.is_ready)
    yield forkserver
    forkserver.close()


@pytest.fixture(scope="module")
def undisturbed(forkserver, tmp_path_factory):
    runs = Runs(forkserver, tmp_path_factory.mktemp("undisturbed"), every_steps=None)
    assert runs.attempt() == 0
    return runs


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("every_steps", "save_number"),
    [(2, 1), pytest.param(2, 2, marks=pytest.mark.exhaustive), (None, 1)],
    ids=["first", "second", "final"],
)
def test_death_at_any_moment_of_a_save_changes_nothing(
    moment, every_steps, save_number, forkserver, undisturbed, tmp_path
):
    runs = Runs(forkserver, tmp_path, every_steps)
    assert runs.attempt(dies_at=f"{moment} {save_number}") == -signal.SIGKILL
    assert len(runs.committed) == save_number - 1 + is_reached("staged", by=moment)
    for directory in tmp_path.iterdir():
        if (directory / MANIFEST).exists():
            verify(directory)
        else:
            assert not is_reached("manifest-named", by=moment)
    newest = runs.committed[-1].step if runs.committed else 0
    assert runs.attempt() == 0
    assert runs.from_steps == [0, newest]
    require_same_end(runs, undisturbed)


def is_reached(moment, by):
    names = list(MOMENTS)
    return names.index(moment) <= names.index(by)


def final_of(runs):
    """Return the final checkpoint, whose commit may come before that of the one before."""
    (final,) = (each for each in runs.committed if each.type is CheckpointType.FINAL)
    return final


def require_same_end(runs, undisturbed):
    assert final_of(runs).artifacts == final_of(undisturbed).artifacts
    assert runs.curve == undisturbed.curve
