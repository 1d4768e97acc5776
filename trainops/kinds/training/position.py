"""Where a training checkpoint stands. Without torch."""

from collections.abc import Mapping
from typing import Any

from trainops.runtime.position import Position, completed

SUMMARY = (
    "epoch", "global_step", "train_loss", "val_loss", "train_accuracy", "val_accuracy",
    "learning_rate", "best_val_loss",
)  # fmt: skip
ALSO_READ = ("cursor",)
BEST = ("best_metric",)


def position(state: Mapping[str, Any], step: int) -> Position:
    epoch, cursor = state.get("epoch"), state.get("cursor") or {}
    if epoch is None:
        return Position({}, f"step {step}")
    is_within = bool(cursor.get("next_batch"))  # or before the validation that ends it
    text = completed("epoch", epoch)
    return Position({"epoch": epoch}, f"{text}, step {step}" if is_within else text)
