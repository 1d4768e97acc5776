"""The values that can be logged. Each is checked when it is made, and encoded when it is logged."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from trainops.media import encoding, items
from trainops.media.arrays import Array, array_of, described, is_tensor, scaled, shaped
from trainops.media.errors import MediaError
from trainops.media.limits import (
    MAX_BINS,
    MAX_CAPTION,
    MAX_CELL,
    MAX_CLASSES,
    MAX_COLUMNS,
    MAX_LABEL,
    MAX_RATE,
    MAX_ROWS,
    MAX_SIDE,
    MIN_RATE,
)

CHANNELS = (1, 3, 4)
RANGE_HINT = "; set low and high for another range"
MAX_PLAIN_INT = 2**53  # larger ones are no numbers of JavaScript


class Value(Protocol):
    """Something that can be logged."""

    type: ClassVar[str]
    caption: str

    def encode(self) -> bytes: ...


class Image:
    """Pixels (height, width), (height, width, channels) or (channels, height, width).

    There are 1, 3 or 4 channels: grey, RGB, RGBA. Where both layouts are possible, a tensor has its
    channels first and an array last. Numbers go from `low` to `high`: by default 0 to 255 for
    integers, and 0 to 1 for all others.
    """

    type: ClassVar[str] = items.IMAGE

    def __init__(
        self, data: Any, *, caption: str = "", low: float | None = None, high: float | None = None
    ) -> None:
        self.caption = _caption(caption)
        array = _with_channels(array_of(data, "Image"), channels_first=is_tensor(data))
        height, width, _ = array.shape
        if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
            problem = f"got {height} x {width} pixels"
            raise MediaError(f"Image: {problem}; allowed: 1 to {MAX_SIDE} each")
        self.pixels = np.rint(scaled(array, low, high, "Image", RANGE_HINT) * 255).astype(np.uint8)

    def encode(self) -> bytes:
        return encoding.png(self.pixels)


def _with_channels(array: Array, *, channels_first: bool) -> Array:
    if array.ndim == 2:
        return array[:, :, None]
    is_last = array.ndim == 3 and array.shape[2] in CHANNELS
    is_first = array.ndim == 3 and array.shape[0] in CHANNELS
    if is_first and (channels_first or not is_last):
        return array.transpose(1, 2, 0)
    if not is_last:
        allowed = "height x width, with 1, 3 or 4 channels before or after; a list logs several"
        raise MediaError(f"Image: got shape {shaped(array.shape)}; allowed: {allowed}")
    return array


class Histogram:
    """How many of the values, of any shape, are in each bin.

    bins: their number, or their edges. Values that are not finite are counted apart.
    """

    type: ClassVar[str] = items.HISTOGRAM

    def __init__(self, values: Any, bins: int | Sequence[float] = 50, *, caption: str = "") -> None:
        self.caption = _caption(caption)
        numbers = array_of(values, "Histogram").astype(np.float64).reshape(-1)
        if not numbers.size:
            raise MediaError("Histogram: got no values; allowed: at least one")
        finite = numbers[np.isfinite(numbers)]
        self.num_not_finite, edges = int(numbers.size - finite.size), _bins(bins)
        try:
            self.counts, self.edges = np.histogram(finite, edges)
        except ValueError as error:  # bins that are narrower than a number can be
            raise MediaError(f"Histogram: {error}; allowed: fewer bins, or edges") from None

    def encode(self) -> bytes:
        return _json({"edges": self.edges.tolist(), "counts": self.counts.tolist(),
                      "num_not_finite": self.num_not_finite})  # fmt: skip


def _bins(bins: Any) -> Any:
    if isinstance(bins, int) and not isinstance(bins, bool):
        if not 1 <= bins <= MAX_BINS:
            raise MediaError(f"Histogram: got {bins} bins; allowed: 1 to {MAX_BINS}")
        return bins
    edges = array_of(bins, "Histogram bins").astype(np.float64)
    is_sound = edges.ndim == 1 and 2 <= edges.size <= MAX_BINS + 1 and np.isfinite(edges).all()
    if not (is_sound and (np.diff(edges) > 0).all()):
        allowed = f"their number, or 2 to {MAX_BINS + 1} finite edges in ascending order"
        raise MediaError(f"Histogram bins: got {described(bins)}; allowed: {allowed}")
    return edges


class Table:
    """Rows of text, numbers, booleans and None under named columns."""

    type: ClassVar[str] = items.TABLE

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, caption: str = ""
    ) -> None:
        self.caption = _caption(caption)
        self.columns = [_text(each, MAX_CELL, "Table columns") for each in columns]
        if not 1 <= len(self.columns) <= MAX_COLUMNS:
            problem = f"got {len(self.columns)} columns"
            raise MediaError(f"Table: {problem}; allowed: 1 to {MAX_COLUMNS}")
        if len(rows) > MAX_ROWS:
            raise MediaError(f"Table: got {len(rows)} rows; allowed: up to {MAX_ROWS}")
        self.rows = [self._row(number, row) for number, row in enumerate(rows, 1)]

    def _row(self, number: int, row: Sequence[Any]) -> list[Any]:
        if isinstance(row, str) or len(row) != len(self.columns):
            given = "text" if isinstance(row, str) else f"{len(row)} cells"
            raise MediaError(f"Table row {number}: got {given}; allowed: {len(self.columns)} cells")
        return [_cell(each, f"Table row {number}") for each in row]

    def encode(self) -> bytes:
        return _json({"columns": self.columns, "rows": self.rows})


def _cell(given: Any, what: str) -> Any:
    if hasattr(given, "item") and getattr(given, "ndim", 0) == 0:  # a number of NumPy or torch
        given = given.item()
    match given:
        case None | bool():
            return given
        case int():
            return given if abs(given) <= MAX_PLAIN_INT else str(given)
        case float():
            return given if math.isfinite(given) else str(given)
        case str():
            return _text(given, MAX_CELL, what)
    problem = f"got {described(given)} in a cell"
    raise MediaError(f"{what}: {problem}; allowed: text, numbers, booleans, None")


class ConfusionMatrix:
    """Counts by true class (row) and predicted class (column).

    Either `matrix`, or `truths` and `predictions`: the numbers of the classes, from 0.
    """

    type: ClassVar[str] = items.CONFUSION_MATRIX

    def __init__(
        self,
        labels: Iterable[object],
        matrix: Any = None,
        *,
        truths: Any = None,
        predictions: Any = None,
        caption: str = "",
    ) -> None:
        self.caption = _caption(caption)
        self.labels = [_text(str(each), MAX_LABEL, "ConfusionMatrix labels") for each in labels]
        if not 1 <= len(self.labels) <= MAX_CLASSES:
            problem = f"got {len(self.labels)} labels"
            raise MediaError(f"ConfusionMatrix: {problem}; allowed: 1 to {MAX_CLASSES}")
        has_pairs = truths is not None and predictions is not None
        if (matrix is not None) == has_pairs or (truths is None) != (predictions is None):
            names = {"matrix": matrix, "truths": truths, "predictions": predictions}
            given = ", ".join(name for name, each in names.items() if each is not None) or "nothing"
            allowed = "matrix, or truths and predictions"
            raise MediaError(f"ConfusionMatrix: got {given}; allowed: {allowed}")
        self.counts = self._counted(truths, predictions) if has_pairs else self._given(matrix)

    def _given(self, matrix: Any) -> Array:
        found, size = array_of(matrix, "ConfusionMatrix"), len(self.labels)
        if found.shape != (size, size):
            problem = f"got shape {shaped(found.shape)}"
            raise MediaError(f"ConfusionMatrix: {problem}; allowed: {size} x {size}, as labels")
        numbers = found.astype(np.float64)
        is_count = np.isfinite(numbers) & (numbers >= 0) & (numbers == np.floor(numbers))
        if not is_count.all():
            wrong = numbers[~is_count].flat[0]
            raise MediaError(f"ConfusionMatrix: got {wrong:g}; allowed: integers from 0")
        return found.astype(np.int64)

    def _counted(self, truths: Any, predictions: Any) -> Array:
        first = self._classes(truths, "ConfusionMatrix truths")
        second = self._classes(predictions, "ConfusionMatrix predictions")
        if first.size != second.size:
            problem = f"got {first.size} truths and {second.size} predictions"
            raise MediaError(f"ConfusionMatrix: {problem}; allowed: equally many")
        size = len(self.labels)
        return np.bincount(first * size + second, minlength=size**2).reshape(size, size)

    def _classes(self, given: Any, what: str) -> Array:
        array, last = array_of(given, what).reshape(-1), len(self.labels) - 1
        if array.dtype.kind == "f":
            raise MediaError(f"{what}: got {array.dtype}; allowed: integers from 0 to {last}")
        numbers = array.astype(np.int64)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() <= last:
            wrong = next(each for each in numbers.tolist() if not 0 <= each <= last)
            raise MediaError(f"{what}: got {wrong}; allowed: 0 to {last}, as labels")
        return numbers

    def encode(self) -> bytes:
        return _json({"labels": self.labels, "counts": self.counts.tolist()})


class Audio:
    """A clip: samples (number), (number, channels) or (channels, number), 1 or 2 channels.

    Samples are floats from -1 to 1, or 16-bit integers; rate: samples per second.
    """

    type: ClassVar[str] = items.AUDIO

    def __init__(self, samples: Any, rate: int, *, caption: str = "") -> None:
        self.caption = _caption(caption)
        if type(rate) is not int or not MIN_RATE <= rate <= MAX_RATE:
            allowed = f"an integer from {MIN_RATE} to {MAX_RATE}"
            raise MediaError(f"Audio rate: got {described(rate)}; allowed: {allowed}")
        self.rate = rate
        array = _by_channel(array_of(samples, "Audio"))
        if array.dtype == np.int16:
            self.samples = array.copy()
        elif array.dtype.kind == "f":
            numbers = scaled(array, -1.0, 1.0, "Audio") * 2 - 1
            self.samples = np.rint(numbers * 32767).astype(np.int16)
        else:
            allowed = "floats from -1 to 1, or int16"
            raise MediaError(f"Audio: got samples of {array.dtype}; allowed: {allowed}")

    def encode(self) -> bytes:
        return encoding.wav(self.samples, self.rate)


def _by_channel(array: Array) -> Array:
    """Return samples as (number, channels)."""
    found = array[:, None] if array.ndim == 1 else array
    if found.ndim == 2 and found.shape[1] not in (1, 2) and found.shape[0] in (1, 2):
        found = found.T
    if found.ndim != 2 or found.shape[1] not in (1, 2) or not found.size:
        allowed = "at least one sample, of 1 or 2 channels"
        raise MediaError(f"Audio: got shape {shaped(array.shape)}; allowed: {allowed}")
    return found


def _caption(given: object) -> str:
    return _text(given, MAX_CAPTION, "caption")


def _text(given: object, longest: int, what: str) -> str:
    if not isinstance(given, str):
        raise MediaError(f"{what}: got {described(given)}; allowed: text")
    if len(given) > longest:
        raise MediaError(f"{what}: got {len(given)} characters; allowed: up to {longest}")
    return given.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _json(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
