"""Text as a table of one column: each line is a row."""

import pytest

from apps.datasets.tables.options import LINES, TableLimits


def lines(read, content, **options):
    return read(content, delimiter=LINES, **options)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_each_line_is_a_row_without_its_end(read, end):
    table = lines(read, end.join(["a,b;c", "", '"quoted', " spaces ", "é", ""]))
    assert table.rows == {"text": ["a,b;c", "", '"quoted', " spaces ", "é"]}
    assert table.types == {"text": "text"}
    assert table.columns["text"]["missing"] == 0
    assert (table.description["format"], table.description["delimiter"]) == ("text", LINES)


def test_the_last_line_needs_no_end(read):
    assert lines(read, "one\ntwo").rows == {"text": ["one", "two"]}


def test_what_looks_like_another_format_is_text_where_a_person_says_so(read, refused):
    for content in ("{1: 2}\n", "<p>\n", "PAR1 is a name\n", "[x]\n"):
        assert lines(read, content).rows == {"text": [content.strip()]}
    refused("UNSUPPORTED_FORMAT", "{1: 2}\n")


def test_many_lines_are_read_in_batches(read):
    numbers = [str(each) for each in range(70_000)]
    assert lines(read, "\n".join(numbers)).rows == {"text": numbers}


def test_another_encoding_may_be_declared(read):
    assert lines(read, "é\n".encode("cp1252"), encoding="cp1252").rows == {"text": ["é"]}


@pytest.mark.parametrize(
    ("code", "content", "options"),
    [
        ("EMPTY_FILE", " \n", {}),
        ("BINARY_FILE", b"a\0b\n", {}),
        ("COMPRESSED_FILE", b"PK\x03\x04rest", {}),
        ("WRONG_ENCODING", b"\xff\n", {}),
        ("ROW_TOO_LONG", "x" * 11, {"limits": TableLimits(max_row_bytes=10)}),
        ("TOO_MANY_ROWS", "a\nb\nc\n", {"limits": TableLimits(max_rows=2)}),
        ("WRONG_TYPE", "1\n", {"columns": {"text": "number"}}),
        ("UNKNOWN_COLUMN", "1\n", {"columns": {"a": "text"}}),
    ],
)
def test_what_is_no_text_is_refused(refused, code, content, options):
    refused(code, content, delimiter=LINES, **options)


def test_a_line_of_the_greatest_length_is_read_with_either_end(read):
    limits = TableLimits(max_row_bytes=10)
    for end in ("\n", "\r\n"):
        assert lines(read, "x" * 10 + end, limits=limits).rows == {"text": ["x" * 10]}
