"""Layers and networks that the built-in recipes share."""

from torch import nn

SMALL = 8  # pixels of a side, above which there is another level


def norm(name: str, channels: int) -> list[nn.Module]:
    """Return the normalisation of this name for an even number of channels."""
    match name:
        case "group":
            return [nn.GroupNorm(2, channels)]
        case "batch":
            return [nn.BatchNorm2d(channels)]
    return []


def small_cnn(
    shape: tuple[int, int, int],
    classes: int,
    *,
    channels: int,
    hidden: int,
    dropout: float,
    norm_name: str = "none",
) -> nn.Sequential:
    """Return a network from (N, C, H, W) pixels, of this shape (C, H, W), to (N, classes) scores.

    Two convolutions and a pooling, and one more of each until a side has at most 8 pixels.
    """
    inputs, height, width = shape
    layers = [*_level(inputs, channels, norm_name), *_level(channels, 2 * channels, norm_name)]
    layers.append(nn.MaxPool2d(2))
    height, width = height // 2, width // 2
    while max(height, width) > SMALL and min(height, width) > 1:
        layers += [*_level(2 * channels, 2 * channels, norm_name), nn.MaxPool2d(2)]
        height, width = height // 2, width // 2
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * channels * height * width, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, classes),
    )


def _level(inputs: int, outputs: int, norm_name: str) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), *norm(norm_name, outputs), nn.ReLU()]
