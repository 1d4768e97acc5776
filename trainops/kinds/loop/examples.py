"""Load the examples of a batch, in the process of the run or in a worker process."""

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from trainops.datasets.errors import DirectoryAway, DirectoryChanged
from trainops.kinds.loop.seeding import start_streams, streams_restored
from trainops.runtime.errors import InputError, LoaderLost

# Not of one example: they end the attempt by reasons of their own, and are never skipped.
OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError)
DATA_GONE = (DirectoryAway, DirectoryChanged)
# What torch and a broken connection say in the process of the run; it quotes errors of a worker
# process after "Caught".
WORKER_ENDED = re.compile(r"DataLoader worker \(.*\) (?:is killed by|exited)", re.DOTALL)
FILE_LISTS = ("samples", "imgs", "files", "paths")  # attributes of datasets, by index
Collate: TypeAlias = Callable[[list[Any]], Any]


class LoadFailure(NamedTuple):
    """Why an example could not be loaded."""

    what: str
    traceback: str


class Loaded(NamedTuple):
    """A batch, or None where no example of it could be loaded; and those that could not."""

    batch: Any
    failures: list[LoadFailure]


class NumberedBatch(list[int]):
    """Indices of examples, and what their random numbers follow from.

    Those of an example follow from (seed, pass, index); where an example may `repeat` in a pass,
    from its place in the pass, too. Those of collate_fn follow from the number of the batch.
    """

    def __init__(self, indices: Sequence[int], seed: str, number: int, repeats: bool) -> None:
        super().__init__(indices)
        self.seed, self.number, self.repeats = seed, number, repeats

    def __reduce__(self) -> Any:
        return NumberedBatch, (list(self), self.seed, self.number, self.repeats)

    @property
    def key(self) -> str:
        return f"{self.seed}/batch {self.number}"

    def key_of(self, place: int) -> str:
        at = f" at {self.number}.{place}" if self.repeats else ""
        return f"{self.seed}/example {self[place]}{at}"


class Loading(Dataset[Loaded]):
    """Loads whole batches of a map-style dataset, each as a function of its NumberedBatch alone.

    `is_random`: whether dataset and collate_fn may draw random numbers from the global streams. A
    dataset with __getitems__ loads a batch at once, and draws by the number of the batch.
    """

    def __init__(self, name: str, dataset: Any, collate: Collate | None, is_random: bool) -> None:
        self.name, self.dataset, self.collate = name, dataset, collate
        tensors = _tensors_of(dataset)
        self.dataset_draws = is_random and tensors is None
        self.collate_draws = is_random and collate not in (None, default_collate)
        self.is_indexed = tensors is not None and all(map(_is_plain, tensors))

    def __getitems__(self, batch: NumberedBatch) -> Loaded:
        draws = self.dataset_draws or self.collate_draws
        with streams_restored() if draws else nullcontext():
            if self.is_indexed:
                return self._indexed(batch)
            if _loads_batches(self.dataset):
                examples, failures = self._at_once(batch)
            else:
                examples, failures = self._one_by_one(batch)
            return self._collated(batch, examples, failures)

    def _indexed(self, batch: NumberedBatch) -> Loaded:
        """Take the batch out of tensors in memory: the same as its examples one by one."""
        dataset: Any = self.dataset
        indices = list(batch)
        try:
            while type(dataset) is Subset:
                dataset, indices = dataset.dataset, [int(dataset.indices[i]) for i in indices]
            chosen = torch.tensor(indices)
            parts = [each[chosen] for each in dataset.tensors]
        except IndexError:  # of a Subset
            return self._collated(batch, *self._one_by_one(batch))
        if self.collate in (None, default_collate):
            return Loaded(parts, [])
        return self._collated(batch, list(zip(*(each.unbind() for each in parts), strict=True)), [])

    def _one_by_one(self, batch: NumberedBatch) -> tuple[Any, list[LoadFailure]]:
        """Return the examples that could be loaded, None if there are none, and the failures."""
        examples, failures = [], []
        for place, index in enumerate(batch):
            if self.dataset_draws:
                start_streams(batch.key_of(place))
            try:
                examples.append(self.dataset[index])
            except (*OUT_OF_MEMORY, *DATA_GONE):
                raise
            except Exception as error:  # noqa: BLE001 - the process of the run decides
                file = _file_of(self.dataset, index, error)
                at = f" ({file})" if file else ""
                failures.append(_failure(f"example {index} of {self.name!r}{at}", error))
        return examples or None, failures

    def _at_once(self, batch: NumberedBatch) -> tuple[Any, list[LoadFailure]]:
        """Return what the dataset has for all of them: a list, or a tensor."""
        if self.dataset_draws:
            start_streams(batch.key)
        try:
            return self.dataset.__getitems__(list(batch)), []
        except (*OUT_OF_MEMORY, *DATA_GONE):
            raise
        except Exception as error:  # noqa: BLE001
            what = f"batch {batch.number} of {self.name!r} (examples {list(batch)!s:.200})"
            return None, [_failure(what, error)]

    def _collated(self, batch: NumberedBatch, examples: Any, failures: list[LoadFailure]) -> Loaded:
        if examples is None:
            return Loaded(None, failures)
        if self.collate is None:
            return Loaded(default_collate(examples), failures)
        if self.collate_draws:
            start_streams(f"{batch.key}/collate")
        return Loaded(self.collate(examples), failures)


def as_loaded(loaded: Loaded) -> Loaded:
    """Stand in for the collate_fn of a DataLoader: `Loading` has done that."""
    return loaded


def first_tensor(batch: Any) -> Tensor | None:
    """Return the first tensor of a batch, whose first dimension counts its examples."""
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return next((each for part in batch if (each := first_tensor(part)) is not None), None)
    return None


def cannot_load(
    name: str, number: int, at: int, error: Exception, *, has_workers: bool
) -> Exception:
    """Return the error to raise where batch `at` of a pass did not come from a DataLoader.

    Frees the frames of the given error, which hold the DataLoader and its worker processes.
    """
    traceback.clear_frames(error.__traceback__)
    kind = f"{type(error).__name__}: "
    where = f"batch {at} of pass {number} of {name!r} cannot be loaded"
    if has_workers and (code := _code_of_ended_worker(error)):
        what = f"{where}, because a worker process of the loader has ended: {kind}{error}"
        remedy = "if memory ran out, use a smaller num_workers, prefetch_factor or batch_size"
        return LoaderLost(code, f"{what}; {remedy}")
    # A worker process puts a traceback before, whose last line begins with the class.
    text = str(error).strip().rpartition("\n")[2].rpartition(kind)[2][:500]
    if isinstance(error, DATA_GONE):
        return type(error)(text.removeprefix("data: "))
    if isinstance(error, (*OUT_OF_MEMORY, InputError)):
        return error
    return InputError({"recipe": f"{where}: {kind}{text}"})


def _code_of_ended_worker(error: Exception) -> str:
    """Return the reason code if a worker process of a DataLoader has ended; else nothing."""
    text = str(error)
    if text.startswith("Caught "):
        return ""
    if isinstance(error, EOFError | ConnectionError):
        return "PROCESS_KILLED"
    if not isinstance(error, RuntimeError) or not WORKER_ENDED.search(text):
        return ""
    if "with exit code" in text:
        return "PROCESS_EXITED"
    return "SEGMENTATION_FAULT" if "Segmentation fault" in text else "PROCESS_KILLED"


def _failure(what: str, error: Exception) -> LoadFailure:
    text = f"{type(error).__name__}: {error}"
    return LoadFailure(f"{what} cannot be loaded: {text[:500]}", traceback.format_exc())


def _tensors_of(dataset: Any) -> tuple[Tensor, ...] | None:
    """Return the tensors whose parts the examples are, which draws no random numbers."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return dataset.tensors if type(dataset) is TensorDataset else None


def _is_plain(tensor: Tensor) -> bool:
    """Whether an index gives what stacking its parts gives, in the same memory layout."""
    is_usual = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.is_contiguous()
    return is_usual and not (tensor.requires_grad or tensor.is_quantized)


def _loads_batches(dataset: Any) -> bool:
    while isinstance(dataset, Subset):  # which has __getitems__ for datasets with and without it
        dataset = dataset.dataset
    return hasattr(dataset, "__getitems__")


def _file_of(dataset: Any, index: int, error: Exception) -> str | None:
    """Return the file of an example, where the error or the dataset names one."""
    if isinstance(named := getattr(error, "filename", None), str | Path):
        return str(named)
    if isinstance(dataset, Subset):
        return _file_of(dataset.dataset, dataset.indices[index], error)
    for name in FILE_LISTS:
        try:
            entry = getattr(dataset, name)[index]
        except (AttributeError, LookupError, TypeError):
            continue
        first = entry[0] if isinstance(entry, list | tuple) and entry else entry
        if isinstance(first, str | Path):
            return str(first)
    return None
