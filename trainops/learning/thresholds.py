"""Thresholds that kinds of training share."""

from trainops.kind import Threshold

EPOCH_INTERVAL = Threshold(
    "training_epoch_interval",
    "checkpoint.every_epochs",
    10,
    "Epochs between checkpoints of a training (default).",
)
