"""What a recipe of any kind can log: see docs/media.md. `trainops.log` is the same function.

    from trainops.media import ConfusionMatrix, log

    log("learning_rate", optimizer.param_groups[0]["lr"])
    log("confusion", ConfusionMatrix(labels, truths=targets, predictions=scores.argmax(1)))

What is logged within a step belongs to that step: a resume that computes the step again logs it
again, and what an earlier attempt had logged is retired, as its metric points are. No state and no
random stream changes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainops.media.errors import MediaError
    from trainops.media.recorder import log
    from trainops.media.values import Audio, ConfusionMatrix, Histogram, Image, Table

__all__ = ["Audio", "ConfusionMatrix", "Histogram", "Image", "MediaError", "Table", "log"]
MODULES = {"log": "recorder", "MediaError": "errors"}


def __getattr__(name: str) -> Any:
    """Import it: the web process reads items that were logged, and loads no NumPy for that."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES.get(name, 'values')}"), name)
