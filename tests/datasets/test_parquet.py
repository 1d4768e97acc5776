"""Parquet is read as plain, flat values, or refused; nothing in it is executed."""

from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.datasets.tables.normalise import normalise
from apps.datasets.tables.options import TableLimits, TableOptions
from apps.datasets.tables.refusals import TableRefused
from tests.datasets.conftest import parquet


@pytest.mark.parametrize(
    ("values", "kind", "read_as"),
    [
        (pa.array([1, None], pa.int8()), "integer", [1, None]),
        (pa.array([1, 2**63 - 1], pa.uint64()), "integer", [1, 2**63 - 1]),
        (pa.array([0.5, float("nan"), None], pa.float32()), "number", [0.5, None, None]),
        (pa.array([Decimal("1.50")]), "number", [1.5]),
        (pa.array([True, None]), "boolean", [True, None]),
        (pa.array(["x", ""]), "category", ["x", ""]),
        (pa.array(["x"], pa.large_string()), "category", ["x"]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), "category", ["x", "y", "x"]),
        (pa.array([7, 8, 7]).dictionary_encode(), "integer", [7, 8, 7]),
        (pa.array([date(2024, 1, 2)]), "datetime", [datetime(2024, 1, 2)]),  # noqa: DTZ001
        (
            pa.array([datetime(2024, 1, 2, tzinfo=UTC)], pa.timestamp("ns", "Europe/Berlin")),
            "datetime",
            [datetime(2024, 1, 2, tzinfo=UTC)],
        ),
    ],
)
def test_plain_values(read, values, kind, read_as):
    table = read(parquet({"a": values}))
    assert table.types == {"a": kind}
    assert table.rows == {"a": read_as}
    assert table.description["format"] == "parquet"


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1, 2]]),
        pa.array([{"x": 1}]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([b"\x80\x04"]),
        pa.array([b"abc"], pa.binary(3)),
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.time32("s")),
    ],
)
def test_values_that_are_not_plain_are_refused(refused, values):
    error = refused("UNSUPPORTED_TYPE", parquet({"ok": [1], "a": values}))
    assert error.field == "columns.a" and error.details["given"] and error.details["allowed"]


def test_an_extension_type_is_refused_and_not_run(refused, tmp_path):
    trap = tmp_path / "executed"
    pickled = f"cposix\nsystem\n(S'touch {trap}'\ntR.".encode()
    field = pa.field(
        "a",
        pa.int64(),
        metadata={
            b"ARROW:extension:name": b"arrow.py_extension_type",
            b"ARROW:extension:metadata": pickled,
        },
    )
    refused("UNSUPPORTED_TYPE", parquet(pa.table([[1]], schema=pa.schema([field]))))
    assert not trap.exists()


def test_pandas_tables_lose_their_index(read):
    frame = pd.DataFrame({"x": [1.5, np.nan], "c": ["a", "b"]}, index=["r", "s"])
    table = read(parquet(pa.Table.from_pandas(frame)))
    assert table.rows == {"x": [1.5, None], "c": ["a", "b"]}


def test_declared_types_hold_for_parquet_too(read, refused):
    content = parquet({"a": ["1", "2.5"], "b": [1, 2], "d": ["2024-01-01", None]})
    declared = {"a": "number", "b": "category", "d": "datetime"}
    table = read(content, columns=declared)
    assert table.types == declared
    assert table.rows["a"] == [1, 2.5] and table.rows["b"] == ["1", "2"]
    error = refused("WRONG_TYPE", parquet({"a": ["1", "x"]}), columns={"a": "number"})
    assert error.details["given"] == [{"row": 2, "value": "x"}]
    refused("WRONG_TYPE", parquet({"a": [1.5]}), columns={"a": "integer"})
    refused("WRONG_TYPE", parquet({"a": pa.array([2**64 - 1], pa.uint64())}))
    refused("UNKNOWN_COLUMN", parquet({"a": [1]}), columns={"b": "number"})


def test_zoned_dates_written_as_text(read):
    content = parquet({"a": ["2024-01-01T00:00:00Z"]})
    table = read(content, columns={"a": "datetime"})
    assert table.rows["a"] == [datetime(2024, 1, 1, tzinfo=UTC)]


def test_infinities_are_refused(refused):
    error = refused("NOT_FINITE", parquet({"a": [1.0, float("inf")]}))
    assert error.field == "columns.a" and error.details["given"] == [2]


def test_a_column_of_nothing_beside_others(read):
    found = read(parquet({"a": pa.nulls(2), "b": [1, 2]}))
    assert found.rows["a"] == [None, None]


def test_no_rows(refused):
    refused("NO_ROWS", parquet({"a": pa.array([], pa.int64())}))
    refused("NO_VALUES", parquet({"a": pa.array([None, None], pa.int64())}))


def test_names(refused):
    two = pa.table([[1], [2]], names=["a", "a"])
    refused("DUPLICATE_COLUMN_NAME", parquet(two))
    refused("EMPTY_COLUMN_NAME", parquet({"": [1]}))
    many = parquet({f"c{n}": [1] for n in range(1001)})
    assert refused("TOO_MANY_COLUMNS", many).details["allowed"] == 1000


def test_too_many_rows_by_what_the_file_says(refused):
    refused("TOO_MANY_ROWS", parquet({"a": list(range(11))}), TableLimits(max_rows=10))


@pytest.mark.slow
def test_a_small_file_that_unpacks_into_a_large_one(refused):
    content = parquet({"a": ["x" * 1000] * 200_000}, use_dictionary=False, compression="zstd")
    assert len(content) < 1_000_000
    error = refused("TOO_LARGE_UNPACKED", content, TableLimits(max_unpacked_bytes=10_000_000))
    assert error.details["allowed"] == 10_000_000
    repeated = parquet({"a": ["x" * 1000] * 200_000})  # says it is small: one word, repeated
    refused("TOO_LARGE_UNPACKED", repeated, TableLimits(max_unpacked_bytes=10_000_000))


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1PAR1", b"PAR1" + b"\x00" * 50 + b"PAR1"])
def test_only_the_magic(refused, content):
    refused("INVALID_PARQUET", content)


def test_a_cut_off_file(refused):
    content = parquet({"a": list(range(1000))})
    assert "truncated" in refused("INVALID_PARQUET", content[:-10]).message


GOOD = parquet({"a": list(range(500)), "b": [f"word {n % 17}" for n in range(500)]})


@pytest.mark.slow
@given(
    edits=st.lists(
        st.tuples(st.integers(4, len(GOOD) - 5), st.integers(0, 255)), min_size=1, max_size=6
    )
)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_altered_bytes_are_refused_or_read_but_never_an_accident(tmp_path, edits):
    content = bytearray(GOOD)
    for position, byte in edits:
        content[position] = byte
    source, target = tmp_path / "source", tmp_path / "table.parquet"
    source.write_bytes(content)
    with suppress(TableRefused):  # and nothing else
        assert normalise(source, target, TableOptions(), TableLimits())["num_rows"] > 0


def test_csv_and_parquet_of_one_table_are_one_dataset(read):
    text = "a,b,c\n" + "".join(f"{n},w{n % 5},{n / 3!r}\n" for n in range(1, 500))
    rows = range(1, 500)
    columns = {"a": list(rows), "b": [f"w{n % 5}" for n in rows], "c": [n / 3 for n in rows]}
    one = read(text).path.read_bytes()
    assert read(parquet(columns, row_group_size=77)).path.read_bytes() == one


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (pa.array([0, 2**62], pa.timestamp("us")), "DATE_OUT_OF_RANGE"),
        (pa.array([0, -(2**62)], pa.timestamp("us", "UTC")), "DATE_OUT_OF_RANGE"),
        (pa.array([0, 2**62], pa.timestamp("ms")), "WRONG_TYPE"),  # wrapped, it would be plausible
        (pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()), "WRONG_TYPE"),
        (pa.array([0, 86_400_000 * 10**7]).cast(pa.date64()), "DATE_OUT_OF_RANGE"),
    ],
)
def test_a_date_that_no_program_shows_is_refused(refused, values, code):
    refused(code, parquet({"a": values}))


def test_a_row_is_not_longer_than_allowed(read, refused):
    row = {"a": ["x", "q" * 2**22, None], "b": ["x", "q" * 2**22, "x"], "c": [1, 2, 3]}
    assert read(parquet(row)).description["num_rows"] == 3
    row["b"][1] += "q"
    assert refused("ROW_TOO_LONG", parquet(row)).details["allowed"] == 2**23
