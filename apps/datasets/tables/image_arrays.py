"""What the arrays of an image set must be: the rules, and the errors that name the array."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.datasets.tables.npz import NpzOutline
from apps.datasets.tables.options import TableLimits
from apps.datasets.tables.refusals import TableRefused

ARRAYS = ("images", "labels", "masks", "client")
MIN_SIDE, MAX_CHANNELS = 8, 4
IMAGE_DTYPES = ("uint8", "uint16", "float32", "float64")
SHAPES = (
    f"(N, H, W), (N, H, W, C) or (N, C, H, W), with N of at least 1, H and W of at least "
    f"{MIN_SIDE} and C of 1 to {MAX_CHANNELS}"
)


def check_arrays(outlines: Mapping[str, NpzOutline], limits: TableLimits) -> None:
    """Raises TableRefused: what is missing, of another dtype, shape or length."""
    images = outlines.get("images")
    if images is None:
        raise _missing("images", outlines)
    if not {"labels", "masks"} & outlines.keys():
        raise _missing("labels or masks", outlines)
    height, width, channels = image_shape(images)
    _check_dtype(images, images.dtype.name in IMAGE_DTYPES, ", ".join(IMAGE_DTYPES))
    for name, each in outlines.items():
        if name == "masks":
            allowed = f"(N, {height}, {width}), like the images"
            _check_shape(each, each.shape[1:] == (height, width) and len(each.shape) == 3, allowed)
            _check_dtype(each, each.dtype.kind in "biu", "bool or integers of 0 and 1")
        elif name != "images":
            _check_shape(each, len(each.shape) == 1, "(N,)")
            _check_dtype(each, each.dtype.kind in "iuU", "integers or text")
        if each.shape[0] != images.shape[0]:
            raise TableRefused(
                "WRONG_LENGTH",
                f"The array {name!r} has {each.shape[0]} rows, and there are {images.shape[0]} "
                "images.",
                field=f"arrays.{name}",
                given=each.shape[0],
                allowed=images.shape[0],
            )
    _check_limits(images, height * width * channels, limits)


def image_shape(images: NpzOutline) -> tuple[int, int, int]:
    """Return height, width and channels. Raises TableRefused.

    A side is at least 8 pixels and channels are at most 4, so which is which is never a guess.
    """
    shape = images.shape
    if len(shape) == 3:
        found = (*shape[1:], 1)
    elif len(shape) == 4 and 1 <= shape[3] <= MAX_CHANNELS:
        found = shape[1:]
    elif len(shape) == 4 and 1 <= shape[1] <= MAX_CHANNELS:
        found = (*shape[2:], shape[1])
    else:
        found = (0, 0, 0)
    height, width, channels = found
    _check_shape(images, shape[:1] > (0,) and min(height, width) >= MIN_SIDE, SHAPES)
    return height, width, channels


def channels_last(values: NDArray[Any], shape: tuple[int, int, int]) -> NDArray[Any]:
    """Return images (n, H, W, C) in little-endian order, floats as float32. Raises TableRefused."""
    if values.ndim == 4 and values.shape[1:] != shape:
        values = values.transpose(0, 2, 3, 1)
    wanted = np.dtype(np.float32) if values.dtype.kind == "f" else values.dtype
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        return np.ascontiguousarray(values.reshape(-1, *shape), dtype=wanted.newbyteorder("<"))


def check_finite(values: NDArray[Any], first_row: int) -> None:
    wrong = ~np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    if wrong.any():
        rows = (first_row + wrong.nonzero()[0]).tolist()
        raise TableRefused(
            "NOT_FINITE",
            f"The array 'images' holds NaN, infinities or numbers beyond float32, first in row "
            f"{rows[0]} (the first row is 0).",
            field="arrays.images",
            given=rows[:20],
            allowed="finite numbers",
        )


def checked_masks(values: NDArray[Any], first_row: int) -> NDArray[Any]:
    """Return masks of 0 and 1, a byte each. Raises TableRefused."""
    wrong = ((values != 0) & (values != 1)).any(axis=(1, 2))
    if wrong.any():
        row = int(wrong.nonzero()[0][0])
        found = np.unique(values[row])[:5].tolist()
        raise TableRefused(
            "WRONG_VALUES",
            f"The array 'masks' holds {found} in row {first_row + row} (the first row is 0); "
            "allowed: 0 for the background and 1 for the foreground (for 255: masks // 255).",
            field="arrays.masks",
            given=found,
            allowed=[0, 1],
        )
    return np.ascontiguousarray(values, dtype=np.uint8)


def _missing(name: str, outlines: Mapping[str, NpzOutline]) -> TableRefused:
    return TableRefused(
        "MISSING_ARRAY",
        f"The archive has no {name}; it has {', '.join(outlines) or 'nothing'}. Required: images, "
        "and labels, masks or both.",
        given=list(outlines),
        allowed=list(ARRAYS),
    )


def _check_dtype(outline: NpzOutline, is_right: bool, allowed: str) -> None:
    if not is_right:
        raise TableRefused(
            "WRONG_DTYPE",
            f"The array {outline.name!r} holds {outline.dtype}; allowed: {allowed}.",
            field=f"arrays.{outline.name}",
            given=str(outline.dtype),
            allowed=allowed,
        )


def _check_shape(outline: NpzOutline, is_right: bool, allowed: str) -> None:
    if not is_right:
        raise TableRefused(
            "WRONG_SHAPE",
            f"The array {outline.name!r} has the shape {outline.shape}; allowed: {allowed}.",
            field=f"arrays.{outline.name}",
            given=list(outline.shape),
            allowed=allowed,
        )


def _check_limits(images: NpzOutline, num_values: int, limits: TableLimits) -> None:
    size = num_values * images.dtype.itemsize
    checks: Sequence[tuple[str, int, int, str]] = (
        ("TOO_MANY_ROWS", images.shape[0], limits.max_rows, "images"),
        ("TOO_LARGE_ROW", size, limits.max_row_bytes, "bytes in each image"),
    )
    for code, given, allowed, what in checks:
        if given > allowed:
            raise TableRefused(
                code,
                f"The array 'images' has {given} {what}; at most {allowed} are allowed.",
                field="arrays.images",
                given=given,
                allowed=allowed,
            )
