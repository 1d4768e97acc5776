"""trainops as a library: drive a job in a notebook, its checkpoints in a directory, no server.

    from library import train
    train("runs/digits", {"recipe": "digits", "epochs": 20, "threads": 1})

Interrupt it (Ctrl-C, or the notebook's stop button): it is saved before it stops. Called again
with the same arguments it continues from there, to the result of an undisturbed run, bit for bit.
"""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainops.kind import KINDS
from trainops.runtime import (
    Candidate,
    Checkpoint,
    CheckpointPolicy,
    CheckpointStore,
    Directive,
    Failed,
    Outcome,
    Progress,
    Receipt,
    read_manifest,
    run,
    set_determinism,
)
from trainops.runtime.errors import CheckpointCorrupted, SaveFailed


class Notebook:
    """The supervisor of a run without a server: it prints progress, and stops on SIGINT."""

    def __init__(self) -> None:
        self.directive = Directive.PROCEED

    def interrupt(self, *_: object) -> None:
        self.directive = Directive.CANCEL

    def restored(self, receipt: Receipt) -> None:
        exact = "exact" if receipt.exact else "not exact"
        print(f"starts at step {receipt.step} ({exact})")

    def corrupted(self, candidate: Candidate, error: CheckpointCorrupted) -> None:
        print(f"skips {candidate.path.name}: {error}")

    def report(self, progress: Progress) -> Directive:
        return self.directive

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        print(f"saved {checkpoint.path.name}")

    def save_failed(self, error: SaveFailed) -> None:
        print(f"not saved: {error}")


def candidates(directory: Path) -> list[Candidate]:
    """Return the checkpoints in a directory, the newest first."""
    manifests = [read_manifest(path.parent) for path in directory.glob("*/manifest.json")]
    manifests.sort(key=lambda each: (each.step, each.created_at), reverse=True)
    return [Candidate(each.path, each.digest) for each in manifests]


def train(directory: str | Path, config: Mapping[str, Any], kind: str = "training") -> Outcome:
    """Run an operation, or continue it from the newest healthy checkpoint in the directory."""
    directory, supervisor = Path(directory), Notebook()
    engine = KINDS[kind]
    parsed = engine.parse_config(config)
    set_determinism(parsed.deterministic, parsed.threads)
    directory.mkdir(parents=True, exist_ok=True)
    found = candidates(directory)
    before = signal.signal(signal.SIGINT, supervisor.interrupt)
    try:
        return run(
            engine.job_factory(parsed),
            seed=parsed.seed,
            store=CheckpointStore(
                directory, identity={"kind": kind, "attempt": len(found)}, candidates=found
            ),
            policy=CheckpointPolicy(every_seconds=60),
            supervisor=supervisor,
        )
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    outcome = train(sys.argv[1], {"recipe": "digits", "epochs": int(sys.argv[2]), "threads": 1})
    print(outcome)
    sys.exit(isinstance(outcome, Failed))
