"""What a model is given of a bar, and what it learns to foretell, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from trainops.market.bars import Bars
from trainops.market.features import features_of, measured, memberships, prepared
from trainops.market.labels import UNKNOWN, forward_return, zigzag
from trainops.market.pipeline import FeatureParameters

CLOSES = np.array([100.0, 110.0, 99.0, 99.0, 120.0, 118.0])
NONE = {name: [] for name in ("returns", "averages", "rsi", "bollinger", "donchian", "atr")}


def features(**wanted):
    closes = CLOSES.reshape(-1, 1)
    parameters = FeatureParameters.parse({**NONE, "macd": False, **wanted})
    return features_of(Bars(closes, closes + 1, closes - 1, closes), 0, parameters)


def test_features_by_hand():
    found = features(returns=[1, 2], averages=[2], donchian=[2])
    assert_array_equal(found["return_1"][1:], CLOSES[1:] / CLOSES[:-1] - 1)
    assert_array_equal(found["return_2"][2:], CLOSES[2:] / CLOSES[:-2] - 1)
    assert np.isnan(found["return_2"][:2]).all()
    assert found["average_2"][1] == 110 / 105 - 1
    assert found["donchian_2"][1] == pytest.approx((2 * 110 - 111 - 99) / 12)
    assert list(features(macd=True)) == ["macd", "macd_histogram"]


def test_a_price_that_does_not_move_has_a_place_all_the_same():
    flat = np.full((30, 1), 5.0)
    parameters = FeatureParameters.parse({**NONE, "bollinger": [3], "donchian": [3], "macd": False})
    found = features_of(Bars(flat, flat, flat, flat), 0, parameters)
    for values in found.values():
        assert set(values[2:]) == {0.0}
    scale = measured({name: values[2:] for name, values in found.items()})
    assert np.isfinite(prepared(found, scale, "beside")[2:]).all()


def test_features_are_standardised_by_what_was_measured_and_bounded():
    columns = {"one": np.array([0.0, 2.0, 4.0])}
    scale = measured(columns)
    later = prepared({"one": np.array([2.0, 1e9, -1e9])}, scale, "off")
    assert later[:, 0].tolist() == [0.0, 8.0, -8.0]
    with pytest.raises(ValueError, match="were measured"):
        prepared({"other": np.zeros(3)}, scale, "off")


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3).map(sorted),
)
def test_memberships_add_up_to_one_and_lie_between(values, centres):
    parts = memberships(np.array(values), centres)
    assert np.allclose(sum(parts), 1.0, atol=1e-12)
    assert all(((part >= -1e-12) & (part <= 1 + 1e-12)).all() for part in parts)


def test_memberships_by_hand():
    low, middle, high = memberships(np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 9.0]), [0.0, 1.0, 3.0])
    assert low.tolist() == [1.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0]
    assert middle.tolist() == [0.0, 0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    assert high.tolist() == [0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 1.0]


def test_a_forward_return_is_known_when_its_last_bar_is():
    values, known_at = forward_return(CLOSES, 2)
    assert_array_equal(values[:4], CLOSES[2:] / CLOSES[:4] - 1)
    assert np.isnan(values[4:]).all()
    assert known_at.tolist() == [2, 3, 4, 5, UNKNOWN, UNKNOWN]
    assert np.isnan(forward_return(CLOSES, 6).values).all()


def test_a_zigzags_legs_are_known_when_the_price_has_turned():
    values, known_at = zigzag(np.array([100.0, 104, 110, 108, 98, 96, 99, 108, 107]), 0.1)
    # up to bar 2, known at bar 4 (98 <= 99); down to bar 5, known at bar 7 (108 >= 105.6)
    assert known_at[:5].tolist() == [4, 4, 7, 7, 7]
    assert values[:5].tolist() == [1, 1, -1, -1, -1]
    assert np.isnan(values[5:]).all() and set(known_at[5:]) == {UNKNOWN}


@given(st.lists(st.floats(50, 150), min_size=2, max_size=60), st.integers(1, 59))
def test_a_label_that_is_known_by_a_bar_is_made_of_bars_up_to_it(closes, bar):
    bar = min(bar, len(closes) - 1)
    whole, cut = zigzag(np.array(closes), 0.05), zigzag(np.array(closes[: bar + 1]), 0.05)
    is_known = whole.known_at[: bar + 1] <= bar
    assert_array_equal(whole.values[: bar + 1][is_known], cut.values[is_known])
    assert np.isnan(cut.values[~is_known]).all()
