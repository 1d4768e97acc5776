"""A small U-Net, and how well it outlines."""

import torch
from torch import Tensor, nn

from trainops.learning.tasks.layers import norm

MULTIPLE = 4  # of pixels, as there are two levels
SMOOTH = 1.0  # in pixels, so that empty masks have a Dice of 1 where nothing is predicted


class UNet(nn.Module):
    """Two levels down, two up: (N, inputs, H, W) -> (N, 1, H, W) scores.

    Sides that are no multiple of 4 are filled up with zeros, and cut again. Ronneberger, Fischer
    and Brox, "U-Net: convolutional networks for biomedical image segmentation" (2015), smaller.
    """

    def __init__(self, inputs: int, width: int, kind: str) -> None:
        super().__init__()
        self.first = _level(inputs, width, kind)
        self.second = _level(width, 2 * width, kind)
        self.bottom = _level(2 * width, 4 * width, kind)
        self.second_up = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.second_back = _level(4 * width, 2 * width, kind)
        self.first_up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.first_back = _level(2 * width, width, kind)
        self.outline = nn.Conv2d(width, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        filled = nn.functional.pad(images, (0, -width % MULTIPLE, 0, -height % MULTIPLE))
        first = self.first(filled)
        second = self.second(nn.functional.max_pool2d(first, 2))
        bottom = self.bottom(nn.functional.max_pool2d(second, 2))
        second = self.second_back(torch.cat([self.second_up(bottom), second], dim=1))
        first = self.first_back(torch.cat([self.first_up(second), first], dim=1))
        scores: Tensor = self.outline(first)[..., :height, :width]
        return scores


def dice(scores: Tensor, masks: Tensor) -> Tensor:
    """Return twice the overlap over the sum of both areas, of each image, at a threshold of 1/2."""
    return _dice((scores > 0).to(masks), masks)


def dice_and_entropy(scores: Tensor, masks: Tensor) -> Tensor:
    """Return binary cross-entropy plus one minus the soft Dice, the mean over the images."""
    entropy = nn.functional.binary_cross_entropy_with_logits(scores, masks)
    return entropy + (1 - _dice(scores.sigmoid(), masks)).mean()


def _dice(predicted: Tensor, masks: Tensor) -> Tensor:
    overlap = (predicted * masks).flatten(1).sum(dim=1)
    areas = predicted.flatten(1).sum(dim=1) + masks.flatten(1).sum(dim=1)
    return (2 * overlap + SMOOTH) / (areas + SMOOTH)


def _level(inputs: int, outputs: int, kind: str) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        *norm(kind, outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        *norm(kind, outputs),
        nn.ReLU(),
    )
