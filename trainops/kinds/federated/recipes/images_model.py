"""What the clients of the images recipe train.

The brightness of the images is measured on all clients' training images together, once: it is taken
as known, and costs no privacy.
"""

from trainops.kinds.federated.ingredients import Federation
from trainops.kinds.federated.recipes.groups import federation_of
from trainops.learning.ingredients import Context
from trainops.learning.tasks.image_table import read_pictures
from trainops.learning.tasks.images import ImagesParameters
from trainops.learning.tasks.images_model import build_from


def build(parameters: ImagesParameters, context: Context) -> Federation:
    """Raises InputError."""
    pictures = read_pictures(parameters.dataset, context, "label")
    return federation_of(pictures, *build_from(pictures, parameters, context))
