"""Training of an unchanged LightningModule and its DataModule. See docs/lightning.md."""

from trainops.kinds.loop.lightning.training import lightning_loop

__all__ = ["lightning_loop"]
