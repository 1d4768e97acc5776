"""Which values of a metric are better. Pure.

The monitored metric has the direction of the config, and so have metrics with the same name but
for a prefix; losses are minimised and accuracies maximised.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Mode: TypeAlias = Literal["min", "max"]
PREFIXES = ("train_", "val_", "test_", "evaluation_")
BY_NAME: Final[Mapping[str, Mode]] = {"loss": "min", "accuracy": "max"}


def stem(name: str) -> str:
    """Return the name of a metric without its prefix."""
    prefix = next((each for each in PREFIXES if name.startswith(each)), "")
    return name.removeprefix(prefix)


def by_name(name: str) -> Mode | None:
    """Return the direction that a metric has by its name alone; None if it has none."""
    return next((mode for word, mode in BY_NAME.items() if name.endswith(word)), None)
