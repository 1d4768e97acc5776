"""An NPZ of images as one normalised Parquet file: a row is an image and what is known of it.

The columns are `image` (its bytes, H x W x C), `label`, `mask` (a byte of 0 or 1 for each pixel)
and `client`; shape and dtype are key-value metadata under "trainops". The same images give the same
bytes, whether channels came first or last, packed or not.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from apps.datasets.tables import image_arrays
from apps.datasets.tables.columns import Column
from apps.datasets.tables.description import ColumnDescription, cell
from apps.datasets.tables.npz import Npz
from apps.datasets.tables.options import TableLimits, TableOptions
from apps.datasets.tables.refusals import TableRefused
from apps.datasets.tables.rows import ColumnRow, DescribedTable
from apps.datasets.tables.thumbnails import thumbnail

GROUP_BYTES = 16 * 1024**2
PREVIEW_IMAGES = 24
MAX_COUNTED = 100  # classes whose images are counted one by one
COLUMNS = {"images": "image", "labels": "label", "masks": "mask", "client": "client"}


def normalise_images(
    source: Path, target: Path, options: TableOptions, limits: TableLimits
) -> DescribedTable:
    """Write `target`; return its description. Raises TableRefused."""
    _refuse_options(options)
    with Npz(source, image_arrays.ARRAYS, limits) as archive:
        image_arrays.check_arrays(archive.outlines, limits)
        images = ImageSet(archive)
        images.write(target)
    return {"num_rows": images.num_rows, "columns": images.columns(), "preview": images.preview}


class ImageSet:
    """Images on their way into a table, and what is seen of them meanwhile."""

    def __init__(self, archive: Npz) -> None:
        self.archive = archive
        outline = archive.outlines["images"]
        self.shape = image_arrays.image_shape(outline)
        self.dtype = np.dtype("float32" if outline.dtype.kind == "f" else outline.dtype.name)
        self.names = [name for name in image_arrays.ARRAYS if name in archive.outlines]
        self.num_rows = 0
        self.preview: list[list[object]] = []
        self._least, self._most = np.inf, -np.inf
        self._marked = 0  # pixels of masks
        self._described = {
            name: ColumnDescription(Column(name, self._kind(name)))
            for name in self.names
            if name in ("labels", "client")
        }
        self._counts: dict[str, Counter[Any]] = {name: Counter() for name in self._described}

    def write(self, target: Path) -> None:
        schema = pa.schema([(COLUMNS[name], self._type(name)) for name in self.names])
        plain = [COLUMNS[name] for name in self._described]
        rows = max(1, min(65_536, GROUP_BYTES // self._width("images")))
        with pq.ParquetWriter(
            target, schema, version="2.6", compression="zstd", use_dictionary=plain,
            write_statistics=plain,
        ) as writer:  # fmt: skip
            for arrays in self.archive.rows(rows):
                columns = [self._column(name, arrays[name]) for name in self.names]
                table = pa.Table.from_arrays(columns, schema=schema)
                writer.write_table(table, row_group_size=rows)
                self._look(arrays)
            kinds = {column["name"]: column["type"] for column in self.columns()}
            layout = {"columns": kinds, "image": {"shape": self.shape, "dtype": self.dtype.name}}
            writer.add_key_value_metadata({"trainops": json.dumps(layout)})

    def columns(self) -> list[ColumnRow]:
        """Return the described columns, JSON-safe."""
        return [
            self._plain(name) if name in self._described else self._picture(name)
            for name in self.names
        ]

    def _column(self, name: str, values: NDArray[Any]) -> pa.Array:
        """Return some rows as an Arrow array. Raises TableRefused."""
        if name in self._described:
            return _plain_values(name, values, self._type(name))
        if name == "images":
            values = image_arrays.channels_last(values, self.shape)
            image_arrays.check_finite(values, self.num_rows)
            self._least = min(self._least, float(values.min()))
            self._most = max(self._most, float(values.max()))
        else:
            values = image_arrays.checked_masks(values, self.num_rows)
            self._marked += int(values.sum())
        buffer = pa.py_buffer(values.data)
        return pa.FixedSizeBinaryArray.from_buffers(self._type(name), len(values), [None, buffer])

    def _look(self, arrays: dict[str, NDArray[Any]]) -> None:
        for name, description in self._described.items():
            values = _plain_values(name, arrays[name], self._type(name))
            description.look(values)
            self._counts[name].update(values.to_pylist())
        wanted = PREVIEW_IMAGES - len(self.preview)
        for row in range(min(wanted, len(arrays["images"]))):
            self.preview.append([self._cell(name, arrays[name][row]) for name in self.names])
        self.num_rows += len(arrays["images"])

    def _cell(self, name: str, value: Any) -> object:
        if name == "images":
            return thumbnail(image_arrays.channels_last(value[None], self.shape)[0])
        if name == "masks":
            return thumbnail(value.astype(np.uint8)[:, :, None] * np.uint8(255))
        return cell(value.item())

    def _plain(self, name: str) -> ColumnRow:
        found, counts = self._described[name].to_json(), self._counts[name]
        row: ColumnRow = {**found, "name": COLUMNS[name]}
        if len(counts) <= MAX_COUNTED:
            row["counts"] = [
                {"value": cell(each), "count": counts[each]} for each in sorted(counts)
            ]
        return row

    def _picture(self, name: str) -> ColumnRow:
        height, width, channels = self.shape
        is_image = name == "images"
        pixels = max(1, self.num_rows * height * width)
        note = (
            f"{height} x {width} pixels, {channels} channel{'s' if channels > 1 else ''}, "
            f"{self.dtype.name}"
            if is_image
            else f"{height} x {width} pixels, {100 * self._marked / pixels:.1f} % of them marked"
        )
        return {
            "name": COLUMNS[name],
            "type": COLUMNS[name],
            "missing": 0,
            "distinct": None,
            "min": self._least if is_image else 0,
            "max": self._most if is_image else 1,
            "examples": [],
            "note": note,
            "shape": [height, width, channels] if is_image else [height, width],
        }

    def _kind(self, name: str) -> str:
        return "category" if self.archive.outlines[name].dtype.kind == "U" else "integer"

    def _width(self, name: str) -> int:
        height, width, channels = self.shape
        return height * width * (channels * self.dtype.itemsize if name == "images" else 1)

    def _type(self, name: str) -> pa.DataType:
        return (
            self._described[name].column.type
            if name in self._described
            else pa.binary(self._width(name))
        )


def _plain_values(name: str, values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return labels or clients as an Arrow array. Raises TableRefused."""
    try:
        return pa.array(values.tolist(), kind)
    except (OverflowError, ValueError, pa.ArrowInvalid):  # UnicodeError is a ValueError
        raise TableRefused(
            "WRONG_VALUES",
            f"The array {name!r} holds numbers beyond signed 64 bits, or invalid text.",
            field=f"arrays.{name}",
            given=str(values.dtype),
            allowed="integers from -2^63 to 2^63 - 1, or text",
        ) from None


def _refuse_options(options: TableOptions) -> None:
    names = ("encoding", "delimiter", "columns")
    if wrong := [name for name in names if getattr(options, name)]:
        raise TableRefused(
            "NOT_FOR_IMAGES",
            f"{', '.join(wrong)}: not allowed for NPZ, which describes its own content.",
            field=wrong[0],
            given=wrong,
            allowed="nothing",
        )
