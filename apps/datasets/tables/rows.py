"""Descriptions of tables as JSON: what a confined process answers and rows store."""

from typing import NotRequired, TypedDict


class Count(TypedDict):
    """A value and the number of rows that hold it."""

    value: object
    count: int


class ColumnHistogram(TypedDict):
    """Counts of numbers in bins of one width, the first of which begins at `start`."""

    start: float
    width: float
    counts: list[int]


class ColumnRow(TypedDict):
    """A described column; values are JSON-safe."""

    name: str
    type: str
    missing: int
    distinct: int | None  # None: too many to count
    min: object
    max: object
    examples: list[object]
    note: str
    shape: NotRequired[list[int]]  # of images and masks
    counts: NotRequired[list[Count]]  # of labels and clients
    histogram: NotRequired[ColumnHistogram]  # of numbers that differ


class DescribedTable(TypedDict):
    """A described table with its first rows, in the order of `columns`."""

    num_rows: int
    columns: list[ColumnRow]
    preview: list[list[object]]


class NormalisedTable(DescribedTable):
    """A described table and the format of the upload; empty texts for formats without them."""

    format: str
    encoding: str
    delimiter: str


class OptionFields(TypedDict):
    """The fields of `Options`."""

    encoding: str
    delimiter: str
    columns: dict[str, str]


class TableRequest(TypedDict):
    """A request to read an upload; `limits` are the fields of `TableLimits`."""

    source: str
    target: str
    options: OptionFields
    limits: dict[str, int]


class TableRefusal(TypedDict):
    """Why a table was refused."""

    code: str
    message: str
    field: str
    details: dict[str, object]


class TableAnswer(TypedDict, total=False):
    """The answer to a request; it has one key."""

    table: NormalisedTable
    refused: TableRefusal
    out_of_memory: bool
    disk_full: bool
