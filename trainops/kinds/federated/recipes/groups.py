"""By what images can be distinguished, and so be given to clients."""

from torch import Tensor

from trainops.kinds.federated.ingredients import Federation, Group
from trainops.learning.ingredients import Ingredients
from trainops.learning.tasks.image_table import Pictures


def federation_of(pictures: Pictures, ingredients: Ingredients, train: Tensor) -> Federation:
    """Return the federation of images, `train` of which are trained on.

    Their classes are their labels; where they have none, their sites or clients.
    """
    groups = {
        name: Group(owners=each.owners[train], names=each.names)
        for name, each in pictures.groups.items()
    }
    classes = next((groups[name] for name in ("label", "site", "client") if name in groups), None)
    return Federation(ingredients=ingredients, classes=classes, groups=groups)
