"""Training by a Hugging Face Trainer, unchanged. See docs/transformers.md."""

from trainops.kinds.loop.transformers.training import transformers_loop

__all__ = ["transformers_loop"]
