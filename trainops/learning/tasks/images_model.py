"""What the images recipe trains."""

from torch import Tensor, nn

from trainops.learning.data import split
from trainops.learning.ingredients import Context, Examples, Ingredients, accuracy
from trainops.learning.tasks.image_table import (
    ImageScale,
    Pictures,
    measure,
    read_pictures,
    require_classes,
    standardised,
)
from trainops.learning.tasks.images import ImagesParameters
from trainops.learning.tasks.layers import small_cnn


def build(parameters: ImagesParameters, context: Context) -> Ingredients:
    """Raises InputError."""
    return build_from(read_pictures(parameters.dataset, context, "label"), parameters, context)[0]


def build_from(
    pictures: Pictures, parameters: ImagesParameters, context: Context
) -> tuple[Ingredients, Tensor]:
    """Return the ingredients of images with labels, and which of them are trained on.

    Raises InputError.
    """
    labels = pictures.groups["label"]
    require_classes(labels)
    train, validation = split(len(pictures), parameters.validation_fraction, context.seed)
    constants: ImageScale = context.constants or measure(pictures.images[train])
    images = standardised(pictures.images, constants)
    channels, height, width = images.shape[1:]
    ingredients = Ingredients(
        model=small_cnn(
            (channels, height, width), len(labels.names), channels=parameters.channels,
            hidden=parameters.hidden, dropout=parameters.dropout, norm_name=parameters.norm,
        ),
        train=Examples((images[train],), labels.owners[train]),
        validation=Examples((images[validation],), labels.owners[validation]),
        loss=nn.functional.cross_entropy,
        measures={"accuracy": accuracy},
        constants=constants,
        description={
            "classes": list(labels.names),
            "shape": [height, width, channels],
            "images": len(pictures),
        },
    )  # fmt: skip
    return ingredients, train
