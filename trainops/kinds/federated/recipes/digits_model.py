"""What the clients of the digits recipe train."""

from torch import nn

from trainops.kinds.federated.ingredients import Federation, Group
from trainops.kinds.federated.recipes.digits import FederatedDigitsParameters
from trainops.learning.ingredients import Context
from trainops.learning.tasks.digits_model import CLASSES, SHAPE, digits_for
from trainops.learning.tasks.layers import small_cnn


def build(parameters: FederatedDigitsParameters, context: Context) -> Federation:
    ingredients = digits_for(_network(parameters))
    names = tuple(ingredients.description["classes"])
    classes = Group(owners=ingredients.train.targets, names=names)
    return Federation(ingredients=ingredients, classes=classes, groups={"label": classes})


def _network(parameters: FederatedDigitsParameters) -> nn.Module:
    """Return a network from (N, 1, 8, 8) pixels in 0..1 to (N, 10) scores."""
    if parameters.network == "cnn":
        return small_cnn(
            SHAPE, CLASSES, channels=parameters.channels, hidden=parameters.hidden,
            dropout=parameters.dropout, norm_name=parameters.norm,
        )  # fmt: skip
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, parameters.hidden),
        nn.ReLU(),
        nn.Dropout(parameters.dropout),
        nn.Linear(parameters.hidden, CLASSES),
    )
