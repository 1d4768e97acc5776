"""What is drawn covers a schema, and says what it does not."""

from itertools import combinations
from typing import Literal

import pytest
from hypothesis import given
from pydantic import Field

from tests.engines.drawing import LEFT_OUT, Space, fields
from trainops.engines.config import Strict


class Inner(Strict):
    number: int = Field(1, ge=1)
    word: str = "a"


class Outer(Strict):
    flag: bool = True
    choice: Literal["x", "y", "z"] | None = None
    only: Literal["one"] = "one"
    inner: Inner = Inner()
    parts: list[Inner] = Field([], max_length=3)
    maybe: Inner | None = None


VALUES = {
    "inner.number": [1, 2, 3], "inner.word": [LEFT_OUT, "b"],
    "parts": [[], [{"number": 2}, {"word": "b"}]], "maybe": [None, {"number": 5}, {"word": "c"}],
}  # fmt: skip
SPACE = Space(Outer, VALUES)


def test_fields_are_those_of_models_in_models_too():
    assert [path for path, _ in fields(Outer)] == [
        "flag", "choice", "only", "inner.number", "inner.word", "parts", "parts[].number",
        "parts[].word", "maybe", "maybe[].number", "maybe[].word",
    ]  # fmt: skip


def test_every_two_values_of_two_fields_meet():
    configs = [Outer.parse(config).model_dump() for config in SPACE.pairwise()]
    assert len(configs) <= 20 < 2 * 4 * 3 * 2 * 2 * 3
    flat = [
        {"flag": c["flag"], "choice": c["choice"], "number": c["inner"]["number"],
         "word": c["inner"]["word"], "parts": len(c["parts"]), "maybe": str(c["maybe"])}
        for c in configs
    ]  # fmt: skip
    for one, other in combinations(flat[0], 2):
        met = {(each[one], each[other]) for each in flat}
        singles = [{each[name] for each in flat} for name in (one, other)]
        assert len(met) == len(singles[0]) * len(singles[1]), (one, other)


def test_fields_that_no_config_varies_are_named():
    assert SPACE.unvaried(SPACE.pairwise()) == []
    assert SPACE.unvaried([{}, {"flag": False, "maybe": {"number": 2}}]) == [
        "choice", "inner.number", "inner.word", "parts", "parts[].number", "parts[].word",
        "maybe[].number", "maybe[].word",
    ]  # fmt: skip


def test_a_field_without_values_is_refused_by_name():
    with pytest.raises(ValueError, match=r"are needed of inner\.word"):
        Space(Outer, {key: each for key, each in VALUES.items() if key != "inner.word"})
    with pytest.raises(ValueError, match=r"Outer has no inner\.size"):
        Space(Outer, VALUES | {"inner.size": [1, 2]})


@given(config=SPACE.configs())
def test_what_is_drawn_is_valid(config):
    Outer.parse(config)
