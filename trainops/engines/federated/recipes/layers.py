"""Layers that the built-in recipes share."""

from torch import nn


def norm(name: str, channels: int) -> list[nn.Module]:
    """Return the normalisation of this name for so many (an even number of) channels."""
    match name:
        case "group":
            return [nn.GroupNorm(2, channels)]
        case "batch":
            return [nn.BatchNorm2d(channels)]
    return []
