"""Reading a set of images that was uploaded as NPZ, and what is measured on it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from trainops.learning.ingredients import Context
from trainops.runtime.errors import InputError

MAX_CLASSES = 1000
AT_ONCE = 1024  # images that are read or measured at a time
Value = int | str


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which of some named values each image has: (N,) int64."""

    owners: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pictures:
    """images (N, C, H, W) float32, masks (N, 1, H, W) of 0 and 1 or none, and the settings."""

    images: Tensor
    masks: Tensor | None = None
    groups: Mapping[str, Grouping] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)


def read_pictures(dataset: str, context: Context, needed: str) -> Pictures:
    """Return an uploaded set that has labels or masks, as is needed. Raises InputError."""
    path = context.table(dataset)
    file = pq.ParquetFile(path)
    layout = json.loads((file.metadata.metadata or {}).get(b"trainops", b"{}")).get("image")
    names = file.schema_arrow.names
    if layout is None:
        raise InputError({"parameters.dataset": f"{dataset} is a table, not a set of images"})
    if needed not in names:
        problem = f"{dataset} has no {needed}s; its columns: {', '.join(names)}"
        raise InputError({"parameters.dataset": problem})
    height, width, channels = layout["shape"]
    images = torch.empty(file.metadata.num_rows, height, width, channels)
    masks = torch.empty(len(images), height, width) if "mask" in names else None
    read = [name for name in ("image", "mask") if name in names]
    first = 0
    for batch in file.iter_batches(AT_ONCE, columns=read):
        _fill(images, first, batch.column("image"), layout["dtype"])
        if masks is not None:
            _fill(masks, first, batch.column("mask"), "uint8")
        first += batch.num_rows
    values = file.read([name for name in ("label", "client") if name in names])
    return Pictures(
        images.permute(0, 3, 1, 2).contiguous(),
        None if masks is None else masks.unsqueeze(1),
        {name: grouped(values[name].to_pylist()) for name in values.column_names},
    )


def grouped(values: Sequence[Value]) -> Grouping:
    """Return which of the sorted distinct values each one is."""
    known = sorted(set(values), key=lambda each: (isinstance(each, str), each))
    places = {value: place for place, value in enumerate(known)}
    owners = torch.tensor([places[value] for value in values], dtype=torch.int64)
    return Grouping(owners, tuple(map(str, known)))


def require_classes(labels: Grouping) -> None:
    """Refuse labels that no network of classes is for. Raises InputError."""
    if not 2 <= len(labels.names) <= MAX_CLASSES:
        problem = f"its labels have {len(labels.names)} different values; allowed: 2 to"
        raise InputError({"parameters.dataset": f"{problem} {MAX_CLASSES}"})


class ImageScale(TypedDict):
    """Mean and deviation of each channel."""

    mean: list[float]
    deviation: list[float]


def measure(images: Tensor) -> ImageScale:
    """Return mean and deviation of each channel of (N, C, H, W) images, as plain values."""
    count = images.numel() // images.shape[1]
    mean = _sums(images, torch.zeros(images.shape[1], dtype=torch.float64), 1) / count
    deviation = (_sums(images, mean, 2) / count).sqrt()
    deviation[deviation == 0] = 1.0
    return {"mean": mean.tolist(), "deviation": deviation.tolist()}


def standardised(images: Tensor, constants: ImageScale) -> Tensor:
    """Return images of mean 0 and deviation 1 in each channel, by what was measured."""
    mean, deviation = (
        torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1)
        for values in (constants["mean"], constants["deviation"])
    )
    return (images - mean) / deviation


def _sums(images: Tensor, mean: Tensor, power: int) -> Tensor:
    """Return of each channel the sum of what is above the mean, to a power, in double precision."""
    centre = mean.view(1, -1, 1, 1)
    parts = [(some.double() - centre).pow(power).sum(dim=(0, 2, 3)) for some in images.split(256)]
    return torch.stack(parts).sum(dim=0)


def _fill(whole: Tensor, first: int, column: Any, dtype: str) -> None:
    """Write rows of bytes into their places of a tensor, as numbers."""
    count, width = len(column), column.type.byte_width
    values = np.frombuffer(
        column.buffers()[1],
        dtype=np.dtype(dtype).newbyteorder("<"),
        count=count * (width // np.dtype(dtype).itemsize),
        offset=column.offset * width,
    )
    rows = values.astype(np.float32).reshape(count, *whole.shape[1:])
    whole[first : first + count] = torch.from_numpy(rows)
