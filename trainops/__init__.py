"""Run operations that can be stopped and resumed: `log` is for code of recipes, see docs/media.md.

import trainops

trainops.log("train_loss", loss)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainops.media.recorder import log as log

__all__ = ["log"]


def __getattr__(name: str) -> Any:
    """Import it on first use: the command line and the web process need no NumPy."""
    if name != "log":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("trainops.media.recorder").log
