"""A child that is killed at any moment of a save leaves whole checkpoints, or what never counts.

Real children, forked from a real nursery, with this test as their supervisor.
"""

import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from apps.operations.attempts.children import Nursery
from tests.engines.contract import Curve
from tests.engines.moments import DIES_AT, MOMENTS
from tests.waiting import wait_until
from trainops.kind import KINDS
from trainops.process.protocol import Hangup, now
from trainops.runtime.checkpoint.manifest import MANIFEST, Checkpoint, CheckpointType, verify

pytestmark = pytest.mark.slow
TOY = {"recipe": "toy", "batch_size": 8, "epochs": 3, "log_every_steps": 2, "seed": 7}


@dataclass
class House:
    """Runs attempts of one operation, and keeps what they said and committed."""

    nursery: Nursery
    root: Path
    every_steps: int | None
    committed: list[Checkpoint] = field(default_factory=list)
    curve: Curve = field(default_factory=dict)
    num_attempts: int = 0
    from_steps: list[int] = field(default_factory=list)  # of each attempt

    def attempt(self, dies_at: str = "") -> int | None:
        """Run one attempt to its end; return its exit code."""
        self.num_attempts += 1
        child = self.nursery.start(f"attempt-{self.num_attempts}")
        try:
            child.wire.send("start", **self._start(), environment={DIES_AT: dies_at})
            while True:
                for message in child.wire.read():
                    self._hear(child, message)
        except Hangup:
            assert child.wait(10)
            return child.exit_code
        finally:
            child.end()
            child.close()

    def _start(self):
        raw = TOY | {"checkpoint": {"every_steps": self.every_steps, "every_seconds": 1e9}}
        return {
            "operation_kind": "training",
            "config": KINDS["training"].parse_config(raw).model_dump(),
            "inputs": {},
            "reserve_bytes": 0,
            "storage_id": "",
            "directory": str(self.root),
            "identity": {"operation_id": "op", "attempt": self.num_attempts},
            "candidates": [
                {"path": str(each.path), "digest": each.digest} for each in self.committed[::-1]
            ],
            "grant_until": now() + 60,
        }

    def _hear(self, child, message):
        match message["kind"]:
            case "restored":
                self.from_steps.append(message["step"])
                assert message["receipt"]["exact"]
            case "progress":
                for step, _, values in message["points"]:
                    assert self.curve.setdefault(step, values) == values, step
            case "staged":
                staged = message["checkpoint"]
                self.committed.append(verify(self.root / staged["directory"], staged["digest"]))
                with suppress(Hangup):  # it died at once; what it said before stands
                    child.wire.send("committed")
            case "ended":
                assert message["how"] == "succeeded", message


@pytest.fixture(scope="module")
def nursery():
    nursery = Nursery()
    nursery.open()
    wait_until(lambda: nursery.is_ready, 60)
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def undisturbed(nursery, tmp_path_factory):
    house = House(nursery, tmp_path_factory.mktemp("undisturbed"), every_steps=None)
    assert house.attempt() == 0
    return house


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("every_steps", "save_number"),
    [(2, 1), (2, 2), (None, 1)],
    ids=["first", "second", "final"],
)
def test_death_at_any_moment_of_a_save_changes_nothing(
    moment, every_steps, save_number, nursery, undisturbed, tmp_path
):
    house = House(nursery, tmp_path, every_steps)
    assert house.attempt(dies_at=f"{moment} {save_number}") == -signal.SIGKILL
    assert len(house.committed) == save_number - 1 + is_reached("staged", by=moment)
    for directory in tmp_path.iterdir():
        if (directory / MANIFEST).exists():
            verify(directory)
        else:
            assert not is_reached("manifest-named", by=moment)
    newest = house.committed[-1].step if house.committed else 0
    assert house.attempt() == 0
    assert house.from_steps == [0, newest]
    require_same_end(house, undisturbed)


def is_reached(moment, by):
    names = list(MOMENTS)
    return names.index(moment) <= names.index(by)


def require_same_end(house, undisturbed):
    final, expected = house.committed[-1], undisturbed.committed[-1]
    assert final.type is CheckpointType.FINAL
    assert final.artifacts == expected.artifacts
    assert house.curve == undisturbed.curve
