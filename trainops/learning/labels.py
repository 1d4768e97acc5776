"""A clear error for a label that is outside of the classes."""

import re
from traceback import walk_tb

from trainops.runtime.errors import InputError

OUTSIDE = re.compile(r"Target (-?\d+) is out of bounds")  # torch's, on the CPU
ON_GPU = "device-side assert triggered"
LOSSES = frozenset({"cross_entropy", "nll_loss"})


def require_labels(error: Exception, where: str) -> None:
    """Raise InputError if `error` is that of a loss that got a label outside of the classes.

    `where` names the batch. A GPU reports the error later, and without the label.
    """
    place = where or "before the first batch"
    if found := OUTSIDE.search(str(error)):
        problem = f"got {found[1]} ({place}); allowed: {_allowed(error)}"
    elif ON_GPU in str(error):
        what = "the GPU got a label or an index that is out of range"
        problem = f"{what} ({place}, or shortly before); the same run with device: cpu names it"
    else:
        return
    raise InputError({"labels": problem}) from error


def _allowed(error: Exception) -> str:
    """Return the labels that the loss allows, by the scores that it was called with."""
    for frame, _ in walk_tb(error.__traceback__):
        is_of_torch = frame.f_globals.get("__name__") == "torch.nn.functional"
        if is_of_torch and frame.f_code.co_name in LOSSES:
            scores = frame.f_locals["input"]
            return f"0 to {scores.shape[min(1, scores.ndim - 1)] - 1}"
    return "0 to the number of classes - 1"
