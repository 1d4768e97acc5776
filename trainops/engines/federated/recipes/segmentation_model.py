"""What the clients of the segmentation recipe train."""

import torch
from torch import Tensor, nn

from trainops.engines.federated.ingredients import Federation, Group
from trainops.engines.federated.recipes.layers import norm
from trainops.engines.federated.recipes.phantoms import make_phantoms
from trainops.engines.federated.recipes.segmentation import SegmentationParameters
from trainops.engines.training.data import split
from trainops.engines.training.ingredients import Context, Examples, Ingredients

VALIDATION_FRACTION = 0.2
SMOOTH = 1.0  # in pixels, so that empty masks have a Dice of 1 where nothing is predicted


def build(parameters: SegmentationParameters, context: Context) -> Federation:
    phantoms = make_phantoms(
        parameters.images, parameters.size, noise=parameters.noise, sites=parameters.sites,
        seed=context.seed,
    )  # fmt: skip
    images = torch.from_numpy(phantoms.images).to(torch.float32).unsqueeze(1)
    masks = torch.from_numpy(phantoms.masks).to(torch.float32).unsqueeze(1)
    train, validation = split(len(images), VALIDATION_FRACTION, context.seed)
    names = tuple(f"site {number + 1}" for number in range(parameters.sites))
    sites = Group(owners=torch.from_numpy(phantoms.sites)[train], names=names)
    return Federation(
        ingredients=Ingredients(
            model=UNet(parameters),
            train=Examples((images[train],), masks[train]),
            validation=Examples((images[validation],), masks[validation]),
            loss=dice_and_entropy,
            measures={"dice": dice},
            description={"pixels": parameters.size**2, "sites": parameters.sites},
        ),
        classes=sites,
        groups={"site": sites},
    )


class UNet(nn.Module):
    """Two levels down, two up: (N, 1, S, S) -> (N, 1, S, S) scores; S is a multiple of 4.

    Ronneberger, Fischer and Brox, "U-Net: convolutional networks for biomedical image
    segmentation" (2015), smaller.
    """

    def __init__(self, parameters: SegmentationParameters) -> None:
        super().__init__()
        width, kind = parameters.channels, parameters.norm
        self.first = _level(1, width, kind)
        self.second = _level(width, 2 * width, kind)
        self.bottom = _level(2 * width, 4 * width, kind)
        self.second_up = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.second_back = _level(4 * width, 2 * width, kind)
        self.first_up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.first_back = _level(2 * width, width, kind)
        self.outline = nn.Conv2d(width, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        first = self.first(images)
        second = self.second(nn.functional.max_pool2d(first, 2))
        bottom = self.bottom(nn.functional.max_pool2d(second, 2))
        second = self.second_back(torch.cat([self.second_up(bottom), second], dim=1))
        first = self.first_back(torch.cat([self.first_up(second), first], dim=1))
        scores: Tensor = self.outline(first)
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
