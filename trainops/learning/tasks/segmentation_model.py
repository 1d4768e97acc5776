"""What the segmentation recipe trains."""

import torch
from torch import Tensor

from trainops.learning.data import split
from trainops.learning.ingredients import Context, Examples, Ingredients
from trainops.learning.tasks.image_table import (
    Grouping,
    Pictures,
    measure,
    read_pictures,
    standardised,
)
from trainops.learning.tasks.phantoms import make_phantoms
from trainops.learning.tasks.segmentation import SegmentationParameters
from trainops.learning.tasks.unet import UNet, dice, dice_and_entropy

VALIDATION_FRACTION = 0.2


def build(parameters: SegmentationParameters, context: Context) -> Ingredients:
    """Raises InputError."""
    return build_from(find_pictures(parameters, context), parameters, context)[0]


def find_pictures(parameters: SegmentationParameters, context: Context) -> Pictures:
    """Return the uploaded images, or phantoms by their site. Raises InputError."""
    if parameters.dataset is not None:
        return read_pictures(parameters.dataset, context, "mask")
    phantoms = make_phantoms(
        parameters.images, parameters.size, noise=parameters.noise, sites=parameters.sites,
        seed=context.seed,
    )  # fmt: skip
    images, masks = (
        torch.from_numpy(each).to(torch.float32).unsqueeze(1)
        for each in (phantoms.images, phantoms.masks)
    )
    names = tuple(f"site {number + 1}" for number in range(parameters.sites))
    return Pictures(images, masks, {"site": Grouping(torch.from_numpy(phantoms.sites), names)})


def build_from(
    pictures: Pictures, parameters: SegmentationParameters, context: Context
) -> tuple[Ingredients, Tensor]:
    """Return the ingredients of images with masks, and which of them are trained on.

    Phantoms are as bright as they are; the brightness of other images is measured.
    """
    images, masks = pictures.images, pictures.masks
    if masks is None:
        raise ValueError("there are no masks")
    train, validation = split(len(images), VALIDATION_FRACTION, context.seed)
    constants = context.constants
    if parameters.dataset is not None:
        constants = constants or measure(images[train])
        images = standardised(images, constants)
    channels, height, width = images.shape[1:]
    ingredients = Ingredients(
        model=UNet(channels, parameters.channels, parameters.norm),
        train=Examples((images[train],), masks[train]),
        validation=Examples((images[validation],), masks[validation]),
        loss=dice_and_entropy,
        measures={"dice": dice},
        constants=constants,
        description={
            "shape": [height, width, channels],
            "images": len(images),
            **{f"{name}s": len(group.names) for name, group in pictures.groups.items()},
        },
    )
    return ingredients, train
