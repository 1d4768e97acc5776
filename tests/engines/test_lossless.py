import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainops.runtime import lossless

keys = st.text() | st.sampled_from(["$float", "$dict"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner),
    max_leaves=20,
)


@pytest.mark.slow
@given(values)
def test_everything_comes_back_through_strict_json(value):
    text = lossless.dumps(value)
    json.loads(text, parse_constant=pytest.fail)
    assert same(lossless.loads(text), value)
    assert same(lossless.decode(json.loads(json.dumps(lossless.encode(value)))), value)


def test_what_it_looks_like():
    assert lossless.dumps({"loss": math.nan, "best": -math.inf}) == (
        '{"loss":{"$float":"nan"},"best":{"$float":"-inf"}}'
    )


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, {"a": {2}}, b"bytes", object()])
def test_what_json_would_change_is_refused(value):
    with pytest.raises(TypeError):
        lossless.dumps(value)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{", "", b"\xff"])
def test_what_it_never_writes_is_refused(text):
    with pytest.raises(ValueError):
        lossless.loads(text)


def same(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other
