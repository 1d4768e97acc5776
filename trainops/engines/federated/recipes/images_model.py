"""What the clients of the images recipe train.

The brightness of the images is measured on all clients' training images together, once: it is taken
as known, and costs no privacy.
"""

from trainops.engines.federated.ingredients import Federation
from trainops.engines.federated.recipes.groups import federation_of
from trainops.engines.training.ingredients import Context
from trainops.engines.training.recipes.image_table import read_pictures
from trainops.engines.training.recipes.images import ImagesParameters
from trainops.engines.training.recipes.images_model import build_from


def build(parameters: ImagesParameters, context: Context) -> Federation:
    """Raises InputError."""
    pictures = read_pictures(parameters.dataset, context, "label")
    return federation_of(pictures, *build_from(pictures, parameters, context))
