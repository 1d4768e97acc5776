"""What a federated recipe is made of: a training recipe's ingredients, and whose each example is.

The halves of a recipe, and what keeps it exact, are those of training
(trainops.learning.ingredients).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from trainops.learning.ingredients import Ingredients

FILE = ""  # names the group by file: no column is called that


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Which of some named owners each training example belongs to: (N,) int64, and the names."""

    owners: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """All that federated training needs from a recipe.

    ingredients: model, loss and examples. The training examples are what lies with the clients; the
        validation examples are the server's own and not private. `optimizers` and
        `schedulers` are refused: clients train as the config says.
    classes: what partitions by class look at, where examples have one.
    groups: how the examples can be distinguished by column or file, by the name of the column, or
        FILE.
    """

    ingredients: Ingredients
    classes: Group | None = None
    groups: Mapping[str, Group] = field(default_factory=dict)
