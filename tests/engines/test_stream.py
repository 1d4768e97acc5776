"""A stream grows at its end, forgets at its beginning, and shares what is full with its copies."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainops.runtime.checkpoint.archives import read_parts, write_parts
from trainops.runtime.checkpoint.stream import GROUP, SEGMENT_BYTES, Stream, grouped

COLUMNS = {"bar": (torch.int64, ()), "price": (torch.float64, (2,))}
ROW_BYTES = 24


def rows(first, end):
    numbers = torch.arange(first, end)
    return {"bar": numbers, "price": torch.stack([numbers * 0.5, -numbers * 0.5], dim=1).double()}


def small(num_rows=0, rows_per_segment=4):
    stream = Stream(COLUMNS, segment_bytes=rows_per_segment * ROW_BYTES)
    stream.append(rows(0, num_rows))
    return stream


def reread(stream):
    return Stream.from_archives("trades", dict(stream.archives("trades")))


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 40), max_size=12),
    st.integers(1, 9),
    st.lists(st.integers(0, 300), max_size=3),
)
def test_rows_come_back_whatever_the_pieces_they_were_appended_in(sizes, segment, forgotten):
    stream = small(rows_per_segment=segment)
    for size in sizes:
        stream.append(rows(len(stream), len(stream) + size))
    for row in forgotten:
        stream.forget(before_row=row)
    total = sum(sizes)
    for each in (stream, stream.copy(), reread(stream)):
        assert len(each) == total and each.first_row <= max([0, *forgotten])
        for name, expected in rows(each.first_row, total).items():
            assert torch.equal(each.column(name), expected)
        each.append(rows(total, total + 1))
        assert each.column("bar")[-1] == total


@pytest.mark.parametrize("forgotten", [0, 4, 9])
def test_a_column_is_read_from_any_row_on(forgotten):
    stream = small(19)
    stream.forget(before_row=forgotten)
    for first in range(20):
        expected = list(range(max(first, forgotten // 4 * 4), 19))
        assert stream.column("bar", first).tolist() == expected, first


def written(directory, stream):
    directory.mkdir()
    return write_parts(directory, b"{}", {"trades": stream})


@pytest.mark.parametrize("read_after", [3, 4, 30, 64, 70, 129])
def test_files_do_not_tell_where_a_stream_was_read_in_between(tmp_path, read_after):
    """Half of a group's segments were read then, and half were filled: its bytes are the same."""
    half = small(read_after, rows_per_segment=2)
    files = written(tmp_path / "half", half)
    stream = read_parts(tmp_path / "half", files)["trades"]
    stream.append(rows(read_after, 131))
    assert written(tmp_path / "read", stream) == written(
        tmp_path / "whole", small(131, rows_per_segment=2)
    )


@given(st.integers(0, 70_000), st.integers(0, 70_000))
def test_every_segment_is_in_one_file_and_the_files_are_few(one, other):
    first, end = sorted((one, other))
    files = list(grouped(first, end))
    assert [n for start, count in files for n in range(start, start + count)] == list(
        range(first, end)
    )
    assert len(files) <= (end - first) // GROUP + 2 * (GROUP - 1)


@pytest.mark.slow
def test_each_full_segment_is_written_twice_however_long_the_stream():
    stream, before, num_written = small(), set(), 0
    for _ in range(3000):
        stream.append(rows(len(stream), len(stream) + 4))
        files = dict(stream.archives("trades"))
        num_written += sum(
            len(content) for name, content in files.items() if name not in before and "x" in name
        )
        before = set(files)
    assert num_written <= 3000 * 2  # alone, with 15 others


def test_a_copy_shares_what_is_full_and_nothing_else():
    stream = small(10)
    copy = stream.copy()
    assert all(a is b for a, b in zip(stream.sealed, copy.sealed, strict=True))
    stream.append(rows(10, 30))
    assert len(copy) == 10 and torch.equal(copy.column("bar"), torch.arange(10))


def test_what_continues_a_stream():
    earlier = small(10)
    later = earlier.copy()
    assert later.continues(earlier) and later.continues(earlier.copy())
    later.append(rows(10, 30))
    assert later.continues(earlier) and not earlier.continues(later)
    later.forget(before_row=9)
    assert later.continues(earlier)
    later.forget(before_row=26)
    assert not later.continues(earlier), "there is a gap between the two"


def test_what_does_not_continue_a_stream():
    earlier = small(10)
    assert not small(10).continues(earlier), "equal rows that were appended anew"
    assert not small(10, rows_per_segment=8).continues(earlier)
    assert not earlier.continues(None) and not earlier.continues(torch.zeros(3))
    forgetful = earlier.copy()
    forgetful.forget(before_row=8)
    assert not earlier.continues(forgetful), "it has what the earlier one forgot"


def test_a_segment_has_the_bytes_that_were_asked_for():
    stream = Stream({"equity": (torch.float64, ())})
    assert stream.segment_rows * 8 == SEGMENT_BYTES
    huge = Stream({"frame": (torch.uint8, (3, 1000, 1000))})
    assert huge.segment_rows == 1


def test_numpy_arrays_are_appended_and_not_aliased():
    stream = Stream({"equity": (torch.float64, ())})
    chunk = np.arange(5.0)
    stream.append({"equity": chunk})
    chunk[:] = 0
    assert stream.column("equity").tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"bar": torch.arange(2)}, "columns bar; allowed: bar, price"),
        ({"bar": torch.arange(2), "price": torch.zeros(2, 2)}, "price is torch.float32"),
        ({"bar": torch.arange(2), "price": torch.zeros(2, 3).double()}, "allowed: torch.float64"),
        ({"bar": torch.arange(3), "price": torch.zeros(2, 2).double()}, "lengths: [2, 3]"),
        ({"bar": torch.tensor(3), "price": torch.zeros(2, 2).double()}, "bar is torch.int64 ()"),
    ],
)
def test_rows_of_other_columns_are_refused_and_change_nothing(bad, said):
    stream = small(3)
    with pytest.raises(ValueError, match=re.escape(said)):
        stream.append(bad)
    assert len(stream) == 3


def damage(archives, name, **changes):
    return archives | {name: archives[name] | changes}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda files: {name: each for name, each in files.items() if name != "trades-1x1.pt"},
        lambda files: {name: each for name, each in files.items() if name != "trades-tail.pt"},
        lambda files: files | {"trades-9x1.pt": files["trades-1x1.pt"]},
        lambda files: files | {"trades-1x1.pt": files["trades-1x1.pt"] * 2},
        lambda files: files | {"trades-1x1.pt": [rows(0, 3)]},
        lambda files: files | {"trades-1x1.pt": [{"bar": torch.arange(4)}]},
        lambda files: damage(files, "trades-tail.pt", rows=rows(8, 12)),
        lambda files: damage(files, "trades-tail.pt", end_segment=1),
        lambda files: damage(files, "trades-tail.pt", segment_rows=2),
    ],
)
def test_files_that_do_not_make_one_stream_are_refused(spoil):
    files = dict(small(10).archives("trades"))
    assert list(files) == ["trades-0x1.pt", "trades-1x1.pt", "trades-tail.pt"]
    with pytest.raises((ValueError, LookupError)):
        Stream.from_archives("trades", spoil(files))
