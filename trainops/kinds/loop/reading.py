"""How the loaders of another trainer's program read their datasets here."""

import logging
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """Settings of all loaders of a training, for its map-style or for its iterable datasets."""

    is_random: bool = True
    skip_undecodable: bool = False
    shards_itself: bool = False

    def options(self, name: str, dataset: Any) -> dict[str, Any]:
        """Return arguments of `Run.loader` for the dataset of a loader."""
        is_iterable = isinstance(dataset, IterableDataset)
        if self.skip_undecodable and is_iterable:
            log.warning("skip_undecodable has no effect on the iterable dataset of %r", name)
        return {
            "is_random": self.is_random,
            "skip_undecodable": self.skip_undecodable and not is_iterable,
            "shards_itself": self.shards_itself and is_iterable,
        }
