"""What the preview of a fork of a loop says of other numbers of ranks."""

import pytest

from trainops.kind import KINDS

LOOP = {"recipe": "digits_loop", "seed": 7}
RANKS = "sums are formed in another order, batches are distributed in another way"


def sentences(before, after, **more):
    kind = KINDS["loop"]
    first, then = (kind.parse_config(LOOP | each) for each in (before, after))
    then.require_forkable(first)
    return list(then.continues(first, **more))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"processes": 2}, [f"processes was 1, is 2: {RANKS}; further ranks draw new numbers"]),
        (
            {"processes": 4},
            {"processes": 2},
            [f"processes was 4, is 2: {RANKS}; further ranks draw new numbers"],
        ),
        (
            {"nodes": 2},
            {"nodes": 1},
            [
                f"processes was 2, is 1: {RANKS}; further ranks draw new numbers",
                "nodes was 2, is 1: NCCL may form sums in an order that depends on the nodes",
            ],
        ),
        (
            {"processes": 2},
            {"processes": 2, "sharding": "full"},
            ["sharding was none, is full: gradients are summed in another order"],
        ),
        (
            {"processes": 2, "sharding": "full"},
            {"processes": 3, "sharding": "full"},
            [
                f"processes was 2, is 3: {RANKS}; further ranks draw new numbers; "
                "parameters are divided anew"
            ],
        ),
    ],
)
def test_another_number_of_ranks_is_said_not_to_be_exact(before, after, expected):
    first, *others = [f"{each}." for each in expected]
    found = sentences(before, after)
    assert found == [
        f"It continues, but not exactly: {first}",
        *(f"Also: {each}" for each in others),
    ]


def test_as_many_ranks_on_other_nodes_may_not_be_exact():
    (found,) = sentences({"processes": 2}, {"nodes": 2})
    assert found.startswith("It may not continue exactly: nodes was 1, is 2: NCCL may form sums")


def test_fewer_nodes_than_wanted_are_said_not_to_be_exact():
    assert sentences({"nodes": 3}, {"nodes": 3, "min_nodes": 2}) == [
        "An attempt on fewer than 3 nodes is not exact; its receipt says so."
    ]


def test_ranks_and_other_fields_are_both_named():
    processes, others = sentences({}, {"processes": 2, "log_every_steps": 3})
    assert "not exactly: processes was 1" in processes
    assert others == "What differs takes effect from this step on."
    epochs = {"processes": 2, "parameters": {"epochs": 9}}
    processes, longer, schedule = sentences({}, epochs)
    assert "not exactly: processes was 1" in processes
    assert longer == "It runs to parameters.epochs 9." and "OneCycleLR" in schedule


def test_under_changed_code_no_length_is_promised():
    (longer, _) = sentences({}, {"parameters": {"epochs": 9}}, may_be_exact=False)
    assert longer == "It runs to parameters.epochs 9."
    assert sentences({}, {"exact": "required"}, may_be_exact=False) == []
