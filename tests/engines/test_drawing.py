"""What is drawn covers a schema, and says what it does not."""

import importlib
from itertools import combinations
from typing import Literal

import pytest
from hypothesis import given
from pydantic import Field, create_model

from tests.engines.drawing import LEFT_OUT, Space, fields
from tests.thinning import quick_some
from trainops import kind as kinds
from trainops.runtime.config import Strict


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


class Planted(Strict):
    flag: bool = False
    number: int = 1


class PlantedFlag(Strict):
    flag: bool = False


KINDS = {
    "training": "tests.engines.test_drawn_training",
    "federated": "tests.federated.test_drawn",
    "backtest": "tests.backtest.test_drawn",
    "rl": "tests.rl.test_drawn",
    "loop": "tests.loop.test_drawn",
}


def test_every_kind_is_drawn():
    assert KINDS.keys() == {*kinds.KINDS.computed}


@pytest.mark.parametrize("kind", quick_some(KINDS, every=3))
def test_a_field_that_is_added_to_a_kind_fails_its_suite_until_it_is_drawn(kind):
    """Where its values are not known, nothing is drawn at all; else no config varies it."""
    drawn = importlib.import_module(KINDS[kind])
    schema = drawn.SPACE.model
    assert schema.kind == kind

    def planted(annotation, default):
        return create_model("Other", __base__=schema, planted=(annotation, default))

    for annotation, default, path in (
        (int, 3, "planted"), (float | None, None, "planted"), (str, "a", "planted"),
        (list[int], [], "planted"), (Planted, Planted(), "planted.number"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"are needed of {path}"):
            Space(planted(annotation, default), drawn.VALUES, drawn.settled)
    for annotation, default, path in (
        (bool, False, "planted"), (Literal["a", "b"], "a", "planted"),
        (PlantedFlag, PlantedFlag(), "planted.flag"),
    ):  # fmt: skip
        space = Space(planted(annotation, default), drawn.VALUES, drawn.settled)
        assert space.unvaried(drawn.PAIRWISE) == [path]
    inner = {**drawn.VALUES, "planted": [[], [{"flag": True}]]}
    space = Space(planted(list[Planted], []), inner, drawn.settled)
    assert "planted[].number" in space.unvaried(drawn.PAIRWISE)


@given(config=SPACE.configs())
def test_what_is_drawn_is_valid(config):
    Outer.parse(config)
