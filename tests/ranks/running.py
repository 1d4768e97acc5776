"""Attempts of several ranks in real processes, with the test as their supervisor."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from apps.operations.attempts.children import ForkServer
from tests.engines.contract import Curve
from tests.points import reproduced
from tests.ranks.together_loop import FAULT
from trainops.kind import KINDS
from trainops.process import protocol
from trainops.process.protocol import (
    Committed,
    Finding,
    ProgressUpdate,
    Restored,
    Staged,
    Start,
    now,
)
from trainops.process.wire import Hangup
from trainops.runtime.checkpoint.manifest import Candidate, Checkpoint, CheckpointType, verify
from trainops.runtime.receipt import Receipt

CONFIG = {
    "recipe": "together", "log_every_steps": 2, "seed": 7, "threads": 1, "processes": 2,
    "device": "cpu",
    "checkpoint": {"every_seconds": 1e9, "every_epochs": 1000, "self_check": False},
}  # fmt: skip


@dataclass
class Attempts:
    """Runs attempts of one operation, and keeps what they sent and committed."""

    forkserver: ForkServer
    root: Path
    config: dict = field(default_factory=dict)
    committed: list[Checkpoint] = field(default_factory=list)
    curve: Curve = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    ended: protocol.Ended | None = None
    output: str = ""
    num_attempts: int = 0
    on_report: object = None
    environment: dict = field(default_factory=dict)
    inputs: dict = field(default_factory=dict)

    def attempt(self, fault="", **changes):
        """Run one attempt to its end; return its last message, or its exit code without one."""
        self.num_attempts += 1
        self.ended = None
        child = self.forkserver.start(f"{self.root}-{self.num_attempts}")
        self.pid = child.pid
        try:
            child.wire.send(self._start(self.environment | {FAULT: fault}, changes))
            while True:
                for message in child.wire.read():
                    self._receive(child, message)
        except Hangup:
            assert child.wait(10)
        finally:
            child.end()
            os.set_blocking(child.output, False)
            with suppress(BlockingIOError):
                while some := os.read(child.output, 1 << 16):
                    self.output += some.decode()
            child.close()
        return child.exit_code if self.ended is None else self.ended

    def _start(self, environment, changes):
        config = KINDS["loop"].parse_config(CONFIG | self.config | changes)
        return Start(
            kind="loop",
            config=config.model_dump(),
            inputs=self.inputs,
            reserve_bytes=0,
            storage_id="",
            directory=self.root,
            operation_id="op",
            attempt=self.num_attempts,
            config_hash="",
            input_digests={},
            has_self_check=config.checkpoint.self_check,
            candidates=tuple(Candidate(each.path, each.digest) for each in self.committed[::-1]),
            grant_until=now() + 100,
            environment=environment,
            num_ranks=config.num_processes,
        )

    def _keep(self, checkpoint):
        """Keep a checkpoint in the order of steps: the last one may come before the one before."""
        attempt, at = checkpoint.path.name.partition("-")[0], len(self.committed)
        while (
            at
            and self.committed[at - 1].path.name.startswith(f"{attempt}-")
            and order_of(self.committed[at - 1]) > order_of(checkpoint)
        ):
            at -= 1
        self.committed.insert(at, checkpoint)

    def _receive(self, child, message):
        match message:
            case Restored(receipt=receipt):
                self.receipts.append(receipt)
            case ProgressUpdate(points=points):
                for step, values in reproduced(points):
                    known = self.curve.setdefault(step, {})
                    again = known.keys() & values.keys()
                    assert {name: known[name] for name in again} == {n: values[n] for n in again}
                    known |= values
                if self.on_report is not None:
                    self.on_report(child, message)
            case Staged(checkpoint=staged):
                self._keep(verify(self.root / staged.directory, staged.digest))
                with suppress(Hangup):
                    child.wire.send(Committed())
            case Finding():
                self.findings.append(message)
            case protocol.Succeeded() | protocol.Stopped() | protocol.Failed():
                self.ended = message


def order_of(checkpoint):
    return checkpoint.step, checkpoint.type is CheckpointType.FINAL


def require_same_end(attempts, expected):
    final, wanted = attempts.committed[-1], expected.committed[-1]
    assert final.type is CheckpointType.FINAL
    assert {each.name: each.blake3 for each in final.artifacts} == {
        each.name: each.blake3 for each in wanted.artifacts
    }
    assert attempts.curve == expected.curve
