"""Images in class folders, and pairs of an image and a mask."""

import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from trainops.datasets.directory import Directory, unreadable
from trainops.datasets.errors import DataError
from trainops.datasets.layouts import IMAGES
from trainops.learning.readers.opened import require_index

Mode: TypeAlias = Literal["RGB", "L"]
Size: TypeAlias = tuple[int, int]  # height, width
UNDECODABLE = (
    OSError, EOFError, ValueError, SyntaxError, TypeError, IndexError, KeyError, struct.error,
    zlib.error, Image.DecompressionBombError,
)  # fmt: skip


class ImageFolder(Dataset[tuple[Any, int]]):
    """CLASS/FILE: an example is (image, number of its class).

    An image is uint8 (C, H, W), without transparency; with `size`, resized to it; with `transform`,
    what that returns. Images of more than 8 bits per channel are refused. `classes` are the names
    of the folders, sorted. `folder` is where to look within a directory, such as "train". Raises
    DataError.
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
        read = partial(decode, mode=self._mode, size=self._size)
        image = _read(self.directory, int(self._indices[index]), read)
        if self._transform is not None:
            image = self._transform(image)
        return image, int(self.labels[index])


class ImagePairs(Dataset[Any]):
    """Images and masks of the same names in two folders: an example is (image, mask).

    An image is uint8 (C, H, W), its mask (H, W) with the values of the file, as `decode_mask`
    returns it. With `size`, both are resized, masks to the nearest pixel; with `transform`, an
    example is what that returns for both. Raises DataError for what has no partner.
    """

    def __init__(
        self,
        path: Directory | Path | str,
        images: str = "images",
        masks: str = "masks",
        *,
        mode: Mode = "RGB",
        size: Size | None = None,
        transform: Callable[[Tensor, Tensor], Any] | None = None,
    ) -> None:
        self.directory = Directory.of(path)
        self._mode, self._size, self._transform = mode, size, transform
        found, partners = (_by_stem(self.directory, each) for each in (images, masks))
        if alone := sorted(found.keys() ^ partners.keys()):
            folder, other = (images, masks) if alone[0] in found else (masks, images)
            raise DataError(f"{self.directory.root / folder}/{alone[0]} has no partner in {other}")
        stems = sorted(found)
        self._images = np.array([found[each] for each in stems])
        self._masks = np.array([partners[each] for each in stems])

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Any:
        require_index(index, len(self))
        numbers = int(self._images[index]), int(self._masks[index])
        decoded = partial(decode, mode=self._mode, size=self._size)
        image = _read(self.directory, numbers[0], decoded)
        mask = _read(self.directory, numbers[1], partial(decode_mask, size=self._size))
        if image.shape[1:] != mask.shape:
            names = " and ".join(self.directory.name(each) for each in numbers)
            sizes = f"{tuple(image.shape[1:])} and {tuple(mask.shape)}"
            raise DataError(f"{names} in {self.directory.root} have different sizes: {sizes}")
        return (image, mask) if self._transform is None else self._transform(image, mask)


def _images(directory: Directory, folder: str) -> list[int]:
    found = directory.data_files(folder)
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


class ModeRefused(ValueError):
    """An image of a mode that has other values than are asked for."""


def decode(file: Path | IO[bytes], mode: Mode, size: Size | None = None) -> Tensor:
    """Return an image as uint8 (C, H, W), without transparency. Raises one of UNDECODABLE."""
    with Image.open(file) as opened:
        if opened.mode.startswith(("I", "F")):  # of which `convert` clips the values
            allowed = "images of 8 bits per channel; others as arrays, by ArrayRows"
            raise ModeRefused(f"has the mode {opened.mode}; allowed: {allowed}")
        opened.info.pop("transparency", None)  # about which `convert` may warn
        image = opened.convert(mode)
    if size is not None and image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()


def decode_mask(file: Path | IO[bytes], size: Size | None = None) -> Tensor:
    """Return a mask (H, W) with the values of the file; of a palette, with its indices.

    uint8, with 0 and 1 for images of 1 bit; int32 for those of 16 and 32 bits. RGB is read where
    its channels are equal. Raises one of UNDECODABLE.
    """
    with Image.open(file) as opened:
        image = _one_channel(opened)
    if size is not None and image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]), Image.Resampling.NEAREST)
    values = np.array(image)
    return torch.from_numpy(values.astype(np.uint8) if values.dtype == bool else values)


def _one_channel(image: Image.Image) -> Image.Image:
    """Return an image of the mode L, P, 1 or I with the values of a mask."""
    if image.mode in ("L", "P", "1"):
        return image.copy()
    if image.mode.startswith("I"):
        return image.convert("I")
    if image.mode == "LA":
        return image.getchannel("L")
    if image.mode == "RGB":
        first, *others = image.split()
        if all(each.tobytes() == first.tobytes() for each in others):
            return first
    allowed = "masks in L, P, 1, I;16 and I, and RGB with equal channels"
    raise ModeRefused(f"has the mode {image.mode}; allowed: {allowed}")


def cannot_decode(path: Path, error: Exception) -> DataError:
    """Return the error that names a file for one of UNDECODABLE."""
    return (
        DataError(f"{path} {error}") if isinstance(error, ModeRefused) else unreadable(path, error)
    )


def _read(directory: Directory, index: int, read: Callable[[Path], Tensor]) -> Tensor:
    with directory.reading(index) as path:
        try:
            return read(path)
        except UNDECODABLE as error:
            raise cannot_decode(path, error) from error
