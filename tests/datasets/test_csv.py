"""CSV as people have it: read where it is clear, refused with the place where it is not."""

import csv
import io
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from apps.datasets.tables.options import TableLimits
from tests.thinning import quick_some

# --- dialects and encodings


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(read, delimiter):
    table = read(f"a{delimiter}b\n1{delimiter}x\n2{delimiter}y\n")
    assert table.rows == {"a": [1, 2], "b": ["x", "y"]}
    assert table.description["delimiter"] == delimiter


def test_decimal_commas_do_not_pass_for_delimiters(read):
    table = read("a;b\n1,5;2,5\n3,5;4,5\n")
    assert table.rows == {"a": ["1,5", "3,5"], "b": ["2,5", "4,5"]}


def test_one_column_needs_no_delimiter(read):
    assert read("a\n1\n2\n").rows == {"a": [1, 2]}


def test_a_named_delimiter_decides(read):
    assert read("a,b;c\n1,2;3\n", delimiter=";").rows == {"a,b": ["1,2"], "c": [3]}


def test_an_unknown_delimiter_is_refused(refused):
    assert refused("UNKNOWN_DELIMITER", "a b\n1 2\n", delimiter=" ").details["allowed"]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_endings(read, ending):
    assert read(ending.join(["a,b", "1,x", "2,y", ""])).rows == {"a": [1, 2], "b": ["x", "y"]}


def test_quoted_newlines_delimiters_and_quotes(read):
    table = read('a,b\n"one\ntwo, ""three""",1\nx,2\n')
    assert table.rows == {"a": ['one\ntwo, "three"', "x"], "b": [1, 2]}


def test_a_quoted_newline_in_the_header_is_refused(refused):
    refused("INVALID_COLUMN_NAME", '"a\nb",c\n1,2\n')


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("utf-8", ""), ("utf-8-sig", ""), ("utf-16", ""), ("utf-8", "utf-8"), ("cp1252", "cp1252")],
)
def test_encodings(read, encoding, named):
    table = read("naïve,größe\nJosé,1\nZoë,2\n".encode(encoding), encoding=named)
    assert table.rows == {"naïve": ["José", "Zoë"], "größe": [1, 2]}


def test_big_endian_utf_16(read):
    assert read(b"\xfe\xff" + "ä\n1\n".encode("utf-16-be")).rows == {"ä": [1]}


@pytest.mark.parametrize("padding", [0, 1, 1024**2 - 3, 1024**2 - 2, 1024**2 - 1, 1024**2])
def test_letters_across_the_edge_of_a_block(read, padding):
    table = read("a,b\n" + "x" * padding + "ä€😀,1\n")
    assert table.rows["a"] == ["x" * padding + "ä€😀"]


def test_wrong_encoding_names_the_byte_and_where_it_is(refused):
    content = "a,b\n1,x\n2,é\n".encode("cp1252")
    error = refused("WRONG_ENCODING", content)
    assert error.details["offset"] == content.index(b"\xe9")
    assert error.details["line"] == 3
    assert "0xE9" in error.message and "cp1252" in error.message


@pytest.mark.parametrize("before", [0, 1, 1024**2 - 1, 1024**2, 1024**2 + 1, 3 * 1024**2])
def test_the_offset_is_right_in_every_block(refused, before):
    content = b"a\n" + b"x" * before + b"\xff\n"
    assert refused("WRONG_ENCODING", content).details["offset"] == before + 2


def test_a_letter_cut_in_half_at_the_end(refused):
    assert refused("WRONG_ENCODING", b"a\nx\xc3").details["offset"] == 3


def test_cp1252_has_holes(refused):
    assert refused("WRONG_ENCODING", b"a\n\x81\n", encoding="cp1252").details["offset"] == 2


def test_a_mark_contradicts_the_named_encoding(refused):
    error = refused("WRONG_ENCODING", "a\n1\n".encode("utf-16"), encoding="cp1252")
    assert error.field == "encoding" and error.details["allowed"] == ["utf-16"]


def test_utf_16_without_a_mark_is_explained(refused):
    assert "utf-16" in refused("BINARY_FILE", "a,b\n1,2\n".encode("utf-16-le")).message


def test_utf_32(refused):
    refused("WRONG_ENCODING", "a\n1\n".encode("utf-32"))


def test_unknown_encodings(refused):
    assert refused("UNKNOWN_ENCODING", "a\n1\n", encoding="rot13").details["given"] == "rot13"


# --- headers and rows


@pytest.mark.parametrize("content", ["", "\n", " \r\n\n", "\ufeff"])
def test_an_empty_file(refused, content):
    refused("EMPTY_FILE", content)


@pytest.mark.parametrize("content", ["a,b", "a,b\n", "a,b\r\n\r\n", "\ufeffa,b\n"])
def test_a_header_and_no_rows(refused, content):
    refused("NO_ROWS", content)


@pytest.mark.parametrize("content", ["a,b\n,\n,\n", "a,b\n ,\t\n", 'a,b\n"",""\n'])
def test_rows_without_a_single_value(refused, content):
    error = refused("NO_VALUES", content)
    assert "every cell is empty" in error.message


def test_duplicate_names(refused):
    error = refused("DUPLICATE_COLUMN_NAME", "a,b, a\n1,2,3\n")
    assert error.details["given"] == ["a"]


def test_empty_names(refused):
    assert refused("EMPTY_COLUMN_NAME", ",a,\n1,2,3\n").details["positions"] == [1, 3]


def test_names_that_no_database_holds(refused):
    refused("INVALID_COLUMN_NAME", "a,b\x07\n1,2\n")
    refused("INVALID_COLUMN_NAME", f"a,{'x' * 201}\n1,2\n")


def test_ten_thousand_columns_are_too_many(refused):
    names = [f"c{n}" for n in range(10_000)]
    error = refused("TOO_MANY_COLUMNS", ",".join(names) + "\n" + ",".join("1" * 10_000) + "\n")
    assert error.details == {"given": 10_000, "allowed": 1000}
    assert "10000" in error.message and "1000" in error.message


@pytest.mark.slow
def test_a_thousand_columns_are_not(read):
    names = [f"c{n}" for n in range(1000)]
    assert len(read(",".join(names) + "\n" + ",".join("1" * 1000) + "\n").types) == 1000


def test_ragged_rows_are_named(refused):
    error = refused("RAGGED_ROWS", "a,b\n1,2\n3\n4,5\n6,7,8\n")
    assert error.details["given"] == [{"row": 3, "fields": 1}, {"row": 5, "fields": 3}]
    assert error.details["num_wrong"] == 2 and error.details["allowed"] == 2


def test_too_many_rows(refused):
    assert (
        refused("TOO_MANY_ROWS", "a\n" + "1\n" * 11, TableLimits(max_rows=10)).details["allowed"]
        == 10
    )


def test_a_quote_that_is_never_closed(refused):
    assert refused("BAD_QUOTES", 'a,b\n1,x\n2,"y\n3,z\n').details["row"] == 3


def test_a_row_without_an_end(refused):
    limits = TableLimits(max_row_bytes=4096)
    refused("BAD_QUOTES", 'a,b\n1,"' + "x\n" * 5000, limits)
    refused("HEADER_TOO_LONG", "a" * 5000, limits)
    refused("ROW_TOO_LONG", "a\n1\n" + "x" * 9000 + "\n1\n", limits)


def test_inches_are_no_quotes(read):
    assert read('a,b\n5" pipe,1\nx,2\n').rows["a"] == ['5" pipe', "x"]


# --- other files


@pytest.mark.parametrize(
    ("code", "head"),
    [
        ("COMPRESSED_FILE", b"\x1f\x8b\x08\x00"),
        ("COMPRESSED_FILE", b"PK\x03\x04"),
        ("COMPRESSED_FILE", b"BZh9"),
        ("COMPRESSED_FILE", b"\xfd7zXZ\x00"),
        ("COMPRESSED_FILE", b"\x28\xb5\x2f\xfd"),
        ("UNSUPPORTED_FORMAT", b"\x89HDF\r\n"),
        ("UNSUPPORTED_FORMAT", b"\x80\x04\x95"),
        ("UNSUPPORTED_FORMAT", b'{"a": 1}'),
        ("UNSUPPORTED_FORMAT", b"\n <!doctype html>"),
        ("BINARY_FILE", b"a,b\n1,\x00\n"),
    ],
)
def test_other_files_are_recognised_whatever_they_are_called(refused, code, head):
    assert refused(code, head + b"a,b\n1,2\n" * 10).details["allowed"]


def test_a_zip_bomb_is_never_opened(refused):
    import gzip
    import zipfile

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.csv", b"a\n" + b"1\n" * 10_000_000)
    refused("COMPRESSED_FILE", packed.getvalue())
    refused("COMPRESSED_FILE", gzip.compress(b"a\n" + b"1\n" * 10_000_000))


# --- types


@pytest.mark.parametrize(
    ("values", "kind", "read_as"),
    [
        (["1", "-2", "+3"], "integer", [1, -2, 3]),
        ([" 1", "2 ", "NA"], "integer", [1, 2, None]),
        (["1", "2.5", ".5", "1e3", "-3."], "number", [1, 2.5, 0.5, 1000, -3]),
        (["1", "", "n/a", "NaN", "?", "-", "null"], "integer", [1, *[None] * 6]),
        (["99999999999999999999", "1"], "number", [1e20, 1]),
        (["true", "False", "TRUE", ""], "boolean", [True, False, True, None]),
        (["0", "1"], "integer", [0, 1]),
        (["yes", "no"], "category", ["yes", "no"]),
        (["NA", "DE"], "category", ["NA", "DE"]),
        (["", "x", '""'], "category", [None, "x", None]),
        (["007", "042"], "category", ["007", "042"]),
        (["0x1F", "0x20"], "category", ["0x1F", "0x20"]),
        (["0", "0.5", "-0.25"], "number", [0, 0.5, -0.25]),
        (["2024-01-02", ""], "datetime", [datetime(2024, 1, 2), None]),  # noqa: DTZ001 - no zone
        (
            ["2024-01-02T03:04:05Z", "2024-01-02 05:04:05+02:00"],
            "datetime",
            [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)] * 2,
        ),
        (
            ["2024-01-02", "2024-01-02T03:04:05Z"],
            "category",
            ["2024-01-02", "2024-01-02T03:04:05Z"],
        ),
        (["31.12.2024", "1.1.2025"], "category", ["31.12.2024", "1.1.2025"]),
        (["2024", "2025"], "integer", [2024, 2025]),
        (["1", "x"], "category", ["1", "x"]),
        (["true", "1"], "category", ["true", "1"]),
    ],
)
def test_types_are_found(read, values, kind, read_as):
    table = read("k,v\n" + "".join(f"k,{value}\n" for value in values))
    assert table.types["v"] == kind
    assert table.rows["v"] == read_as


def test_a_column_without_values_is_a_category_of_none(read):
    column = read("a,b\n1,\n2,\n").columns["b"]
    assert (column["type"], column["missing"], column["distinct"]) == ("category", 2, 0)


def test_the_type_is_that_of_all_rows_not_of_the_first(read):
    rows = [str(n) for n in range(5000)] + ["0.5"]
    limits = TableLimits(max_row_bytes=4096)  # many small blocks
    assert read("a\n" + "\n".join(rows) + "\n", limits).types == {"a": "number"}


def test_text_among_numbers_is_reported_with_its_rows(read):
    values = [str(n) for n in range(200)]
    values[17], values[150] = "n.a.", "12 kg"
    column = read("a\n" + "\n".join(values) + "\n", TableLimits(max_row_bytes=256)).columns["a"]
    assert column["type"] == "text"
    assert "2 of 200 values: row 19: 'n.a.'; row 152: '12 kg'" in column["note"]


def test_text_in_a_declared_number_is_an_error_with_its_rows(refused):
    values = [str(n) for n in range(200)]
    values[17], values[150] = "n.a.", "12 kg"
    error = refused(
        "WRONG_TYPE",
        "b,a\n" + "".join(f"x,{value}\n" for value in values),
        TableLimits(max_row_bytes=256),
        columns={"a": "number"},
    )
    assert error.field == "columns.a"
    assert error.details["given"] == [
        {"row": 19, "value": "n.a."},
        {"row": 152, "value": "12 kg"},
    ]
    assert error.details["num_wrong"] == 2 and error.details["allowed"] == "number"


@pytest.mark.parametrize(
    ("kind", "wrong", "row"),
    [
        ("integer", ["1", "2.5"], 3),
        ("integer", ["99999999999999999999"], 2),
        ("number", ["1", "inf"], 3),
        ("boolean", ["true", "ja"], 3),
        ("datetime", ["2024-01-01", "2024-13-01"], 3),
        ("datetime", ["2024-01-01", "2024-01-01T00:00:00Z"], 3),
    ],
)
def test_declared_types_are_strict(refused, kind, wrong, row):
    code = "NOT_FINITE" if "inf" in wrong else "WRONG_TYPE"
    error = refused(code, "a\n" + "\n".join(wrong) + "\n", columns={"a": kind})
    first = error.details["given"][0]
    assert (first if isinstance(first, int) else first["row"]) == row


def test_declared_types_decide(read):
    declared = {"zip": "integer", "year": "category", "name": "text", "x": "number"}
    table = read("zip,year,name,x\n007,2024,ana,1\n008,2025,eve,\n", columns=declared)
    assert table.types == declared
    assert table.rows == {
        "zip": [7, 8],
        "year": ["2024", "2025"],
        "name": ["ana", "eve"],
        "x": [1.0, None],
    }


def test_declaring_what_is_not_there(refused):
    error = refused("UNKNOWN_COLUMN", "a,b\n1,2\n", columns={"c": "number"})
    assert error.details == {"given": "c", "allowed": ["a", "b"]}
    assert refused("UNKNOWN_TYPE", "a\n1\n", columns={"a": "float"}).details["given"] == "float"


def test_infinities_are_refused(refused):
    error = refused("NOT_FINITE", "a\n1\n-inf\nInfinity\n")
    assert error.details["given"] == [3, 4]


def test_few_or_repeated_strings_are_categories_and_the_rest_is_text(read):
    few = "".join(f"c{n % 50},{n % 60},n{n}\n" for n in range(200))
    table = read("few,codes,names\n" + few)
    assert table.types == {"few": "category", "codes": "integer", "names": "text"}


# --- the result


def test_a_description(read):
    table = read("n,c,d\n3,x,2024-01-02\n1,y,2024-03-01\n,x,\n")
    number, category, date = table.description["columns"]
    assert number == {
        "name": "n",
        "type": "integer",
        "missing": 1,
        "distinct": 2,
        "min": 1,
        "max": 3,
        "examples": [3, 1],
        "note": "",
        "histogram": {"start": 1.0, "width": 1.0, "counts": [1, 0, 1]},
    }
    assert (category["distinct"], category["examples"], category["min"]) == (2, ["x", "y"], None)
    assert (date["min"], date["max"]) == ("2024-01-02T00:00:00", "2024-03-01T00:00:00")
    assert table.description["preview"] == [
        [3, "x", "2024-01-02T00:00:00"],
        [1, "y", "2024-03-01T00:00:00"],
        [None, "x", None],
    ]


def test_many_distinct_values_are_not_counted(read):
    assert read("a\n" + "\n".join(map(str, range(2000)))).columns["a"]["distinct"] is None


def test_the_file_knows_its_own_types(read):
    import json

    import pyarrow.parquet as pq

    metadata = pq.read_metadata(read("a,b\n1,x\n2,y\n").path).metadata
    assert json.loads(metadata[b"trainops"]) == {"columns": {"a": "integer", "b": "category"}}


@pytest.mark.slow
def test_the_same_table_gives_the_same_bytes_however_it_was_written(read):
    rows = [(n, f"t{n % 9}", n / 7) for n in range(150_000)]  # three row groups

    def written(delimiter, quoting):
        text = io.StringIO()
        writer = csv.writer(text, delimiter=delimiter, quoting=quoting)
        writer.writerows([("a", "b", "c"), *rows])
        return text.getvalue()

    plain = read(written(",", csv.QUOTE_MINIMAL)).path.read_bytes()
    other = read(written("\t", csv.QUOTE_ALL), TableLimits(max_row_bytes=70_001)).path.read_bytes()
    assert plain == other


def test_nothing_is_left_beside_the_table(read):
    table = read("a\n1\n")
    beside = {path.name for path in table.path.parent.iterdir() if path.is_file()}
    assert beside == {"source", "table.parquet"}


# --- any small table survives

NAMES = st.lists(
    st.text("abc ÄÖ,;'\"", min_size=1, max_size=6).filter(lambda name: name.strip()),
    min_size=2,
    max_size=4,
    unique_by=str.strip,
)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
MAKE = {
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "text": WORDS,
}


@st.composite
def tables(draw):
    names = [name.strip() for name in draw(NAMES)]
    kinds = [draw(st.sampled_from(sorted(MAKE))) for _ in names]
    num_rows = draw(st.integers(1, 8))
    columns = [
        draw(st.lists(MAKE[kind] | st.none(), min_size=num_rows, max_size=num_rows))
        for kind in kinds
    ]
    return names, dict(zip(names, kinds, strict=True)), columns


@pytest.mark.slow
@given(table=tables(), delimiter=st.sampled_from(",;\t|"), ending=st.sampled_from(["\n", "\r\n"]))
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_small_table_survives(read, table, delimiter, ending):
    names, kinds, columns = table
    assume(any(str(v).strip() for column in columns for v in column if v is not None))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator=ending)
    writer.writerow(names)
    for row in zip(*columns, strict=True):
        writer.writerow(["" if v is None else repr(v) if v.__class__ is float else v for v in row])
    found = read(text.getvalue(), columns=kinds, delimiter=delimiter)
    assert found.rows == dict(zip(names, columns, strict=True))
    assert [column["missing"] for column in found.description["columns"]] == [
        column.count(None) for column in columns
    ]


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_read_where_it_is_named(read, refused, order):
    content = "a;b\n1;\u4e2d\n2;x\n".encode(order)
    table = read(content, encoding="utf-16")
    assert table.rows == {"a": [1, 2], "b": ["\u4e2d", "x"]}
    assert table.description["encoding"] == order
    refused("WRONG_ENCODING", content + b"x", encoding="utf-16")
    refused("WRONG_ENCODING", "\u4e2d\u4e2d".encode(order), encoding="utf-16")


@pytest.mark.parametrize(
    ("date", "declared"),
    [
        ("9999-12-31T23:59:59-14:00", {}),
        ("9999-12-31T23:59:59-14:00", {"a": "datetime"}),
        ("0001-01-01T00:00:00+14:00", {"a": "datetime"}),
    ],
)
def test_a_date_outside_the_years_that_can_be_shown_is_refused(read, refused, date, declared):
    error = refused("DATE_OUT_OF_RANGE", f"a\n2026-01-01T00:00:00Z\n{date}\n", columns=declared)
    assert error.details["given"] == [3]
    assert read(f"a\n{date}\n", columns={"a": "text"}).rows == {"a": [date]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "num_columns"), quick_some([*product([1, 2**20, 2**23], [2, 3])], every=6)
)
def test_a_row_is_not_longer_than_allowed(read, refused, num_columns, extra):
    names = ",".join("abc"[:num_columns])
    short = ",".join(["x"] * num_columns)
    piece = (2**23 + extra) // num_columns + 1
    long = ",".join(["q" * piece] * num_columns)
    error = refused("ROW_TOO_LONG", f"{names}\n{short}\n{long}\n{short}\n")
    assert error.details["allowed"] == 2**23
    fitting = ",".join(["q" * (2**23 // num_columns - 10)] * num_columns)
    assert len(read(f"{names}\n{short}\n{fitting}\n").rows["a"]) == 2
