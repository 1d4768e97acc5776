"""How the loaders of a Trainer read their datasets."""

from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset
from transformers import TrainingArguments


@dataclass(frozen=True)
class Reading:
    """Settings of all loaders of a training, for its map-style or for its iterable datasets."""

    is_random: bool
    skip_undecodable: bool

    def options(self, args: TrainingArguments, dataset: Any) -> dict[str, Any]:
        """Return arguments of `Run.loader` for a dataset."""
        is_iterable = isinstance(dataset, IterableDataset)
        return {
            "num_workers": args.dataloader_num_workers,
            "prefetch_factor": args.dataloader_prefetch_factor,
            "persistent_workers": args.dataloader_persistent_workers,
            "is_random": self.is_random,
            "skip_undecodable": self.skip_undecodable and not is_iterable,
        }
