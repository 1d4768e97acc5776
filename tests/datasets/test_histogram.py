"""Histograms of columns: exact counts, whatever the batches and the size of the numbers."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.datasets.tables.histogram import MAX_BINS, ColumnCounts, NumberCounts

NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60)


def counted(*batches, is_whole=False):
    counts = NumberCounts(is_whole=is_whole)
    for batch in batches:
        counts.add(np.array(batch, dtype=np.float64))
    return counts.to_json()


@given(NUMBERS, st.integers(0, 60))
@example([-1.7e308, 1.7e308, 0.0], 1)
@example([5e-324, 0.0], 1)
@example([-5e-324, 1e17], 1)
@example([1e300, 1e300 * (1 + 1e-15)], 1)
def test_counts_do_not_depend_on_the_batches(numbers, cut):
    whole = counted(numbers)
    assert counted(numbers[:cut], numbers[cut:]) == whole
    assert counted(*([each] for each in numbers)) == whole


@given(NUMBERS)
def test_every_number_is_in_the_bin_of_its_place(numbers):
    found = counted(numbers)
    if found is None:
        return
    counts, start, width = found["counts"], found["start"], found["width"]
    assert 2 <= len(counts) <= MAX_BINS and counts[0] and counts[-1]
    assert sum(counts) == len(numbers)
    wanted = [0] * len(counts)
    for each in numbers:
        place = each / width // 1 or (-1 if each < 0 else 0)  # too small to be divided
        wanted[int(place - start / width)] += 1
    assert counts == wanted


@given(st.lists(st.integers(-1000, 1000), min_size=2))
def test_bins_of_whole_numbers_are_whole(numbers):
    found = counted(numbers, is_whole=True)
    assert found is None or (found["width"] >= 1 and found["width"] % 1 == found["start"] % 1 == 0)


@given(
    st.lists(st.integers(-20, 20), min_size=2),
    st.just([]) | st.lists(st.floats(-9, 9)),
    st.integers(0, 9),
)
@example([1, 2], [], 1)
def test_a_column_of_whole_numbers_has_whole_bins_whatever_its_type(whole, more, cut):
    counts = ColumnCounts()
    for batch in (whole[:cut], whole[cut:], more):
        counts.add(np.array(batch, dtype=np.float64))
    is_whole = all(each.is_integer() for each in more)
    assert counts.to_json() == counted([*whole, *more], is_whole=is_whole)


def test_few_bins_are_used_where_they_show_as_much():
    assert counted([1, 2, 2, 4], is_whole=True) == {
        "start": 1.0, "width": 1.0, "counts": [1, 2, 0, 1],
    }  # fmt: skip
    assert len(counted(np.linspace(0, 1, 1000))["counts"]) > MAX_BINS // 2


@pytest.mark.parametrize("numbers", [[], [3.5], [3.5, 3.5], [0.0, 1.7e308]])
def test_equal_numbers_and_the_largest_have_no_histogram(numbers):
    assert counted(numbers) is None
