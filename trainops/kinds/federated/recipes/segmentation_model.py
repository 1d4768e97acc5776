"""What the clients of the segmentation recipe train."""

from trainops.kinds.federated.ingredients import Federation
from trainops.kinds.federated.recipes.groups import federation_of
from trainops.learning.ingredients import Context
from trainops.learning.tasks.segmentation import SegmentationParameters
from trainops.learning.tasks.segmentation_model import build_from, find_pictures


def build(parameters: SegmentationParameters, context: Context) -> Federation:
    """Raises InputError."""
    pictures = find_pictures(parameters, context)
    return federation_of(pictures, *build_from(pictures, parameters, context))
