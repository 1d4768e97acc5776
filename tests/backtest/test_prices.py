"""Price series: found columns, refusals with row numbers, time zones, coarser bars."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.backtest.market import bars_of, walk
from trainops.market.columns import PriceColumns
from trainops.market.prices import read_prices
from trainops.market.resampling import resample
from trainops.runtime.errors import InputError

GOOD = bars_of(*[(100, 101, 99, 100)] * 6)


@pytest.fixture
def read(tmp_path):
    def read_table(table, timezone="UTC", **columns):
        pq.write_table(table, tmp_path / "prices.parquet")
        return read_prices(
            tmp_path / "prices.parquet", PriceColumns(**columns), symbol="X", timezone=timezone
        )

    return read_table


def with_column(name, values):
    return GOOD.set_column(GOOD.column_names.index(name), name, [values])


def times(*hours):
    return pa.array([hour * 3_600_000_000 for hour in hours], pa.timestamp("us"))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (with_column("close", [100, None, 100, 100, None, 100.0]), "no value in rows 3, 6"),
        (with_column("high", [101, 101, 98, 101, 101, 101.0]), "high is below low in row 4"),
        (with_column("low", [99, 99, 99, 0, 99, 99.0]), "low is not above 0 in row 5"),
        (with_column("time", times(0, 1, 2, 2, 3, 4)), "times repeat (time) in row 5"),
        (with_column("time", times(0, 1, 5, 2, 3, 4)), "times are not ascending (time) in row 5"),
        (with_column("time", pa.array([0, None, 2, 3, 4, 5], pa.timestamp("us"))),
         "time has no time in row 3"),
        (with_column("time", pa.array(
            ["2020-01-01T00:00Z", "2020-01-01T01:00Z", "2020-01-01T02:00", "2020-01-01T03:00Z",
             "2020-01-01T04:00Z", "2020-01-01T05:00Z"])),
         "time mixes time zones: a time without one in row 4"),
        (with_column("time", pa.array(["2020-01-01", "2020-01-02", "soon", "2020-01-04",
                                       "2020-01-05", "2020-01-06"])),
         "time has no readable date in row 4"),
        (GOOD.drop_columns(["open", "low"]), "no column for open, low was found"),
        (GOOD.drop_columns(["time"]), "no column for time was found"),
        (with_column("open", pa.array(list("abcdef"))), "'open' (open) holds text, not"),
        (GOOD.slice(0, 0), "has no rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_series_is_reported_by_row(read, table, problem):
    with pytest.raises(InputError) as error:
        read(table)
    assert problem in error.value.errors["dataset"]


def test_many_wrong_rows_are_counted(read):
    with pytest.raises(InputError, match="in rows 2, 3, 4, 5, 6 and 1 more"):
        read(with_column("close", pa.array([None] * 6, pa.float64())))


@pytest.mark.parametrize(
    "names",
    [
        ["Date", "Open", "High", "Low", "Close"],
        ["timestamp", "o", "h", "l", "c"],
        ["Open time", "open", "HIGH", "low_price", "Last"],
    ],
)
def test_columns_are_found_by_their_usual_names(read, names):
    prices = read(GOOD.rename_columns(names))
    assert prices.closes().tolist() == [100.0] * 6


def test_other_names_can_be_set(read):
    table = GOOD.rename_columns(["when", "a", "b", "c1", "d"])
    prices = read(table, open="a", high="b", low="c1", close="d")  # the only date is the time
    assert prices.highs().tolist() == [101.0] * 6
    with pytest.raises(InputError, match=r"columns\.high: got 'nothing'; not in the dataset"):
        read(GOOD, high="nothing")


@pytest.mark.parametrize("factor", [1, 10**3, 10**6, 10**9])
def test_whole_numbers_are_seconds_or_finer_since_1970(read, factor):
    seconds = pa.array([(1_577_836_800 + 3600 * i) * factor for i in range(6)])
    found = read(with_column("time", seconds)).times
    assert found.tolist() == [(1_577_836_800 + 3600 * i) * 10**6 for i in range(6)]


def test_zoned_times_are_read_as_the_moments_they_are(read):
    zone = timezone(timedelta(hours=5))
    moments = [datetime(2020, 1, 1, hour, tzinfo=zone) for hour in range(6)]
    found = read(with_column("time", pa.array(moments, pa.timestamp("us", "Asia/Karachi"))))
    assert found.times[0] == datetime(2019, 12, 31, 19, tzinfo=UTC).timestamp() * 1e6
    text = pa.array([moment.isoformat() for moment in moments])
    assert read(with_column("time", text)).times.tolist() == found.times.tolist()


def test_coarser_bars_have_the_first_open_the_extremes_and_the_last_close(read):
    table = walk(50)
    prices = read(table.append_column("volume", [np.arange(50.0)]))
    coarse = resample(prices, "4h")
    frame = table.to_pandas().set_index("time").resample("4h")
    assert coarse.bars.open[:, 0].tolist() == frame["open"].first().tolist()
    assert coarse.highs().tolist() == frame["high"].max().tolist()
    assert coarse.lows().tolist() == frame["low"].min().tolist()
    assert coarse.closes().tolist() == frame["close"].last().tolist()
    assert coarse.volume[0, 0] == 0 + 1 + 2 + 3
    assert len(coarse) == 13


def test_days_and_weeks_begin_where_the_time_zone_says(read):
    day = resample(read(walk(50)), "1d")
    assert [np.datetime64(int(t), "us").item().hour for t in day.times] == [0, 0, 0]
    berlin = resample(read(walk(50), timezone="Europe/Berlin"), "1d")
    assert [np.datetime64(int(t), "us").item().hour for t in berlin.times] == [0, 23, 23]
    weeks = resample(read(walk(24 * 20)), "1w")  # from a Wednesday on
    assert [np.datetime64(int(t), "us").item().weekday() for t in weeks.times] == [2, 0, 0, 0]
