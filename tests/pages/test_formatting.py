"""How numbers and times are said, and how curves are thinned."""

import math

import pytest

from apps.dashboard import formatting


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "—"), (math.inf, "—"), (0, "0 s"), (0.0123, "12 ms"), (1.5, "1.5 s"), (59.4, "59 s"),
     (250, "4 min 10 s"), (3600, "1 h"), (6720, "1 h 52 min"), (273_600, "3 d 4 h"), (-5, "0 s")],
)  # fmt: skip
def test_durations(seconds, said):
    assert formatting.duration(seconds) == said


@pytest.mark.parametrize(
    ("num_bytes", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (16_471_167, "16.5 MB"), (41e9, "41 GB")],
)
def test_sizes(num_bytes, said):
    assert formatting.size(num_bytes) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.86123, "0.8612"), (1797, "1,797"), (1e-5, "1e-05"), (123456.7, "123,457"),
     (8418.4, "8,418"), (-999.96, "-1,000"), (999.94, "999.9"), ("nan", "nan"),
     (math.nan, "nan"), (None, "—"), (True, "True"), (0.0, "0")],
)  # fmt: skip
def test_numbers(value, said):
    assert formatting.number(value) == said


@pytest.mark.parametrize(
    ("speed", "said"),
    [(3.14159, "3.14 steps/s"), (0.05, "3 steps/min"), (0.001, "3.6 steps/h"), (None, "")],
)
def test_rates(speed, said):
    assert formatting.rate(speed, "step") == said
