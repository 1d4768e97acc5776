"""Any accepted file as one normalised Parquet file, and its description.

The same table gives the same bytes, however it was cut into batches and whatever it was uploaded
as: row groups of a fixed number of rows, fixed options, the columns' kinds as key-value metadata
under "trainops".
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from apps.datasets.tables.columns import schema_of
from apps.datasets.tables.content import TableFormat, format_of
from apps.datasets.tables.csv_source import CsvSource
from apps.datasets.tables.description import Description
from apps.datasets.tables.encoding import to_utf8
from apps.datasets.tables.images import normalise_images
from apps.datasets.tables.options import LINES, TableLimits, TableOptions
from apps.datasets.tables.parquet_source import ParquetSource, too_large
from apps.datasets.tables.refusals import TableRefused
from apps.datasets.tables.rows import DescribedTable, NormalisedTable
from apps.datasets.tables.text_source import TextSource

CELLS_IN_GROUP = 2**22


def normalise(
    source: Path, target: Path, options: TableOptions, limits: TableLimits
) -> NormalisedTable:
    """Write `target`; return its description.

    Raises TableRefused. Memory is bounded by a row group and a block of the CSV, not by the file.
    """
    match format_of(source, is_text=options.delimiter == LINES):
        case TableFormat.TEXT:
            text = target.with_suffix(".utf8")
            encoding = to_utf8(source, text, options.encoding)
            description = _write(TextSource(text, options, limits), target, limits)
            text.unlink()
            return {"format": "text", "encoding": encoding, "delimiter": LINES, **description}
        case TableFormat.CSV:
            text = target.with_suffix(".utf8")
            encoding = to_utf8(source, text, options.encoding)
            table = CsvSource(text, options, limits)
            description = _write(table, target, limits)
            text.unlink()
            return {
                "format": "csv",
                "encoding": encoding,
                "delimiter": table.delimiter,
                **description,
            }
        case TableFormat.PARQUET:
            description = _write(ParquetSource(source, options, limits), target, limits)
            return {"format": "parquet", "encoding": "", "delimiter": "", **description}
        case TableFormat.NPZ:
            description = normalise_images(source, target, options, limits)
            return {"format": "npz", "encoding": "", "delimiter": "", **description}


def _write(
    table: CsvSource | ParquetSource | TextSource, target: Path, limits: TableLimits
) -> DescribedTable:
    description = Description(table.columns)
    unpacked = 0
    schema = schema_of(table.columns)
    with pq.ParquetWriter(target, schema, version="2.6", compression="zstd") as writer:
        for group in _groups(table.batches(), len(table.columns)):
            unpacked += group.nbytes
            if unpacked > limits.max_unpacked_bytes:
                raise too_large(unpacked, limits)
            for batch in group.to_batches():
                description.look(batch)
            writer.write_table(group, row_group_size=group.num_rows)
        if all(column.is_empty for column in description.columns):
            raise TableRefused(
                "NO_VALUES",
                f"The table has {description.num_rows} rows, and every cell is empty.",
                given=0,
                allowed=1,
            )
        found = description.to_json()
        kinds = {column["name"]: column["type"] for column in found["columns"]}
        writer.add_key_value_metadata({"trainops": json.dumps({"columns": kinds})})
    return found


def _groups(batches: Iterable[pa.RecordBatch], num_columns: int) -> Iterator[pa.Table]:
    """The same rows as tables of equal size, each column in one piece."""
    size = max(1024, min(65_536, CELLS_IN_GROUP // num_columns))
    waiting: list[pa.RecordBatch] = []
    num_waiting = 0
    for batch in batches:
        waiting.append(batch)
        num_waiting += batch.num_rows
        while num_waiting >= size:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, size).combine_chunks()
            waiting = table.slice(size).to_batches()
            num_waiting -= size
    if num_waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()
