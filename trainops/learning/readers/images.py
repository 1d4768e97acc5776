"""Images in class folders, and pairs of an image and a mask."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from trainops.datasets.directory import Directory, unreadable
from trainops.datasets.errors import DataError
from trainops.datasets.layouts import IMAGES, is_data
from trainops.learning.readers.opened import require_index

Mode: TypeAlias = Literal["RGB", "L"]
Size: TypeAlias = tuple[int, int]  # height, width
UNDECODABLE = (
    OSError, EOFError, ValueError, SyntaxError, TypeError, IndexError, KeyError, struct.error,
    zlib.error, Image.DecompressionBombError,
)  # fmt: skip


class ImageFolder(Dataset[tuple[Any, int]]):
    """CLASS/FILE: an example is (image, number of its class).

    An image is uint8 (C, H, W); with `size`, resized to it; with `transform`, what that returns.
    `classes` are the names of the folders, sorted. `folder` is where to look within a directory,
    such as "train". Raises DataError.
    """

    def __init__(
        self,
        path: Directory | Path | str,
        folder: str = "",
        *,
        mode: Mode = "RGB",
        size: Size | None = None,
        transform: Callable[[Tensor], Any] | None = None,
    ) -> None:
        self.directory = Directory.of(path)
        self._mode, self._size, self._transform = mode, size, transform
        indices = _images(self.directory, folder)
        depth = len(PurePosixPath(folder).parts)
        of_files = []
        for index in indices:
            parts = PurePosixPath(self.directory.name(index)).parts
            if len(parts) < depth + 2:
                name = self.directory.root / self.directory.name(index)
                raise DataError(f"{name} is in no class folder; allowed: CLASS/FILE")
            of_files.append(parts[depth])
        self.classes = sorted(set(of_files))
        numbers = {name: number for number, name in enumerate(self.classes)}
        self.labels = np.array([numbers[name] for name in of_files])
        self._indices = np.array(indices)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        require_index(index, len(self))
        image = _decoded(self.directory, int(self._indices[index]), self._mode, self._size)
        if self._transform is not None:
            image = self._transform(image)
        return image, int(self.labels[index])


class ImagePairs(Dataset[tuple[Tensor, Tensor]]):
    """Images and masks of the same names in two folders: an example is (image, mask).

    An image is uint8 (C, H, W), its mask uint8 (H, W) with the values of the file. With `size`,
    both are resized, masks to the nearest pixel. Raises DataError for what has no partner.
    """

    def __init__(
        self,
        path: Directory | Path | str,
        images: str = "images",
        masks: str = "masks",
        *,
        mode: Mode = "RGB",
        size: Size | None = None,
    ) -> None:
        self.directory = Directory.of(path)
        self._mode, self._size = mode, size
        found, partners = (_by_stem(self.directory, each) for each in (images, masks))
        if alone := sorted(found.keys() ^ partners.keys()):
            folder, other = (images, masks) if alone[0] in found else (masks, images)
            raise DataError(f"{self.directory.root / folder}/{alone[0]} has no partner in {other}")
        stems = sorted(found)
        self._images = np.array([found[each] for each in stems])
        self._masks = np.array([partners[each] for each in stems])

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        require_index(index, len(self))
        numbers = int(self._images[index]), int(self._masks[index])
        image = _decoded(self.directory, numbers[0], self._mode, self._size)
        mask = _decoded(self.directory, numbers[1], "L", self._size, Image.Resampling.NEAREST)[0]
        if image.shape[1:] != mask.shape:
            names = " and ".join(self.directory.name(each) for each in numbers)
            sizes = f"{tuple(image.shape[1:])} and {tuple(mask.shape)}"
            raise DataError(f"{names} in {self.directory.root} have different sizes: {sizes}")
        return image, mask


def _images(directory: Directory, folder: str) -> list[int]:
    found = [n for n in directory.below(folder) if is_data(PurePosixPath(directory.name(n)))]
    for index in found:
        if PurePosixPath(directory.name(index)).suffix.lower() not in IMAGES:
            allowed = ", ".join(sorted(IMAGES))
            name = directory.root / directory.name(index)
            raise DataError(f"{name} is no image; allowed: {allowed}")
    return found


def _by_stem(directory: Directory, folder: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for index in _images(directory, folder):
        path = PurePosixPath(directory.name(index))
        stem = str(path.relative_to(folder).with_suffix(""))
        if found.setdefault(stem, index) != index:
            raise DataError(f"{directory.root / folder} has two images named {stem}")
    return found


def decode(
    file: Path | IO[bytes],
    mode: Mode,
    size: Size | None = None,
    resampling: Image.Resampling = Image.Resampling.BILINEAR,
) -> Tensor:
    """Return an image as uint8 (C, H, W). Raises one of UNDECODABLE."""
    with Image.open(file) as opened:
        image = opened.convert(mode)
    if size is not None and image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]), resampling)
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()


def _decoded(
    directory: Directory,
    index: int,
    mode: Mode,
    size: Size | None,
    resampling: Image.Resampling = Image.Resampling.BILINEAR,
) -> Tensor:
    with directory.reading(index) as path:
        try:
            return decode(path, mode, size, resampling)
        except UNDECODABLE as error:
            raise unreadable(path, error) from error
