"""Ids as people type them."""

from typing import Any

import pytest

from trainops.client.api import RowPage
from trainops.client.problems import ExitCode, Problem
from trainops.client.references import operation_id, short_ids

FIRST = "op_training_20261126_130700_c0ffee"
SAME_END = "op_loop_20261126_130700_c0ffee"
SAME_TIME = "op_training_20261126_130700_3f9b3c"


class Listing:
    """An Api that lists these operations, or fails where no request is expected."""

    def __init__(self, *ids: str) -> None:
        self.ids, self.num_requests = ids, 0

    def rows(self, path: str, **params: object) -> RowPage[Any]:
        self.num_requests += 1
        found = [each for each in self.ids if str(params["search"]) in each]
        return RowPage([{"operation_id": each, "name": f"run of {each[-6:]}"} for each in found])


def resolved(typed: str, *ids: str) -> Any:
    api: Any = Listing(*ids)
    return operation_id(api, typed)


def test_a_whole_id_costs_no_request():
    api: Any = Listing()
    assert operation_id(api, FIRST) == FIRST
    assert api.num_requests == 0


@pytest.mark.parametrize("typed", ["c0ffee", "ffee", FIRST[:-1], FIRST[:8], "130700_c0ffee"])
def test_an_end_or_a_long_beginning_names_an_operation(typed):
    assert resolved(typed, FIRST) == FIRST


@pytest.mark.parametrize("typed", ["", "   ", "fee", "op_trai", "20261126", "%", "none"])
def test_what_is_too_short_or_in_the_middle_names_none(typed):
    with pytest.raises(Problem, match="No operation matches") as problem:
        resolved(typed, FIRST)
    assert problem.value.exit_code == ExitCode.NOT_FOUND


def test_an_ambiguous_id_names_its_matches():
    with pytest.raises(Problem, match="'op_train' matches several operations") as problem:
        resolved("op_train", FIRST, SAME_TIME)
    assert problem.value.hints == (f"{FIRST}  run of c0ffee", f"{SAME_TIME}  run of 3f9b3c")
    assert resolved("training_20261126_130700_c0ffee", FIRST, SAME_END) == FIRST


def test_a_short_id_names_only_one_of_a_list():
    assert short_ids([FIRST, SAME_TIME]) == ["c0ffee", "3f9b3c"]
    assert short_ids([FIRST, SAME_END, SAME_TIME]) == [
        "training_20261126_130700_c0ffee", "loop_20261126_130700_c0ffee", "3f9b3c",
    ]  # fmt: skip
    assert short_ids([]) == []
    for typed, meant in zip(short_ids([FIRST, SAME_END]), (FIRST, SAME_END), strict=True):
        assert resolved(typed, FIRST, SAME_END) == meant
