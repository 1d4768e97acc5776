"""Checkpoints of a state of which a part changes, one stays and one only grows."""

import torch

from trainops.runtime.checkpoint.snapshot import SafePoint
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore, CheckpointType
from trainops.runtime.checkpoint.stream import Stream

EQUITY = {"equity": (torch.float64, ())}


def grown():
    """Return a state with 200 rows of equity in segments of 64."""
    equity = Stream(EQUITY, segment_bytes=8 * 64)
    equity.append({"equity": torch.arange(200.0, dtype=torch.float64)})
    return {
        "model": {"weight": torch.zeros(300, 300)},
        "best_model": {"weight": torch.ones(300, 300)},
        "equity": equity,
    }


class Run:
    """One attempt's safe point and store, as trainops.runtime.checkpointer uses them."""

    def __init__(self, root, attempt=1):
        self.safe_point = SafePoint(clock=lambda: 0.0, share=0.005)
        self.store = CheckpointStore(root, identity={"attempt": attempt})
        self.step = 0

    def freeze(self, state):
        self.safe_point.take(self.step, lambda: {"state": {"step": self.step}} | state)

    def save(self, state, kind=CheckpointType.PERIODIC):
        self.step += 1
        self.freeze(state)
        return self.store.write(
            kind,
            step=self.step,
            state=self.safe_point.state,
            changed=self.safe_point.changes(),
        )

    def restore(self, checkpoint):
        _, state = self.store.restore(Candidate(checkpoint.path, checkpoint.digest))
        self.safe_point.restored(state)
        return state
