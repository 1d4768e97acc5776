"""What the clients of the segmentation recipe train."""

from trainops.engines.federated.ingredients import Federation
from trainops.engines.federated.recipes.groups import federation_of
from trainops.engines.training.ingredients import Context
from trainops.engines.training.recipes.segmentation import SegmentationParameters
from trainops.engines.training.recipes.segmentation_model import build_from, find_pictures


def build(parameters: SegmentationParameters, context: Context) -> Federation:
    """Raises InputError."""
    pictures = find_pictures(parameters, context)
    return federation_of(pictures, *build_from(pictures, parameters, context))
