"""How the loaders of another trainer's program read their datasets here."""

from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset


@dataclass(frozen=True)
class Reading:
    """Settings of all loaders of a training, for its map-style or for its iterable datasets."""

    is_random: bool = True
    skip_undecodable: bool = False
    shards_itself: bool = False

    def options(self, dataset: Any) -> dict[str, Any]:
        """Return arguments of `Run.loader` for a dataset."""
        is_iterable = isinstance(dataset, IterableDataset)
        return {
            "is_random": self.is_random,
            "skip_undecodable": self.skip_undecodable and not is_iterable,
            "shards_itself": self.shards_itself and is_iterable,
        }
