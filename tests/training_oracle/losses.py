"""The losses and measures of the built-in recipes, each by its formula."""

from typing import Any

import torch
from torch import Tensor

SMOOTH = 1.0  # pixels


def plain(recipe: str, parameters: Any, made: Any) -> dict[str, Any]:
    """Return the loss and measures of what a built-in recipe made; nothing of other recipes."""
    if recipe == "segmentation":
        return {"loss": outline, "measures": {"dice": dice}}
    if recipe not in ("digits", "images", "tabular", "price_direction"):
        return {}
    if made.train.targets.dtype == torch.int64:
        return {"loss": entropy, "measures": {"accuracy": hits}}
    deviation = made.loss_factor**0.5
    measures = {"absolute_error": lambda outputs, targets: distance(outputs, targets) * deviation}
    if recipe == "price_direction":
        measures["accuracy"] = lambda outputs, targets: sides(outputs, targets)
    return {"loss": squared, "measures": measures}


def entropy(scores: Tensor, classes: Tensor) -> Tensor:
    """Return the mean of minus the log of the probability of each example's class."""
    return torch.nn.functional.nll_loss(scores.log_softmax(dim=1), classes)


def hits(scores: Tensor, classes: Tensor) -> Tensor:
    return (scores.max(dim=1).indices == classes).float()


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.nn.functional.mse_loss(outputs, targets)


def distance(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs().reshape(len(targets))


def sides(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) == (targets > 0)).float().reshape(len(targets))


def outline(scores: Tensor, masks: Tensor) -> Tensor:
    """Return binary cross-entropy over all pixels plus one minus the mean soft Dice of images."""
    pixels = torch.nn.functional.binary_cross_entropy_with_logits(scores, masks)
    return pixels + (1 - overlap(torch.sigmoid(scores), masks)).mean()


def dice(scores: Tensor, masks: Tensor) -> Tensor:
    return overlap((scores > 0).float(), masks)


def overlap(predicted: Tensor, masks: Tensor) -> Tensor:
    """Return of each image twice the common area over the sum of both areas, in soft pixels."""
    common = (predicted * masks).reshape(len(masks), -1).sum(1)
    both = predicted.reshape(len(masks), -1).sum(1) + masks.reshape(len(masks), -1).sum(1)
    return (2 * common + SMOOTH) / (both + SMOOTH)
