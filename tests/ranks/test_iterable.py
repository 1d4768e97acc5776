"""Iterable datasets with several ranks equal a plain loop, wherever they are interrupted."""

import signal

import pytest
import torch

from tests.ranks.oracle_streamed import train_all
from tests.ranks.processes import run_ranks
from tests.ranks.running import Attempts, require_same_end
from tests.ranks.test_exactness import state_of
from tests.thinning import some_of
from trainops.process.protocol import Failed, Stopped, Succeeded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
# 13 batches for both ranks, or shards of 8 and 5 batches
CASES = {
    "read-again": {},
    "stateful": {"is_stateful": True},
    "sharded": {"shards": "itself"},
    "stateful-sharded": {"is_stateful": True, "shards": "itself"},
    "enclosing": {"is_stateful": True, "encloses": True},
    "enclosing-sharded": {"is_stateful": True, "shards": "itself", "encloses": True},
    "whole-batches": {"is_stateful": True, "length": 52},  # 13, of which the last is rank 0's
    "several": {"shards": "itself", "several": True},
    "in-place": {"shards": "itself", "is_in_place": True},
    "several-whole": {"several": True},
    "workers": {"is_stateful": True, "num_workers": 2, "length": 52},
}


def config_of(name, **changes):
    return {"recipe": "streamed", "parameters": CASES[name]} | changes


@pytest.fixture(scope="module")
def undisturbed(forkserver, tmp_path_factory):
    found = {}

    def run(name):
        if name not in found:
            found[name] = Attempts(forkserver, tmp_path_factory.mktemp(name), config_of(name))
            assert isinstance(found[name].attempt(), Succeeded), found[name].ended
        return found[name]

    return run


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return what two processes with plain loops trained: of the whole, and of shards."""
    root = tmp_path_factory.mktemp("plain")
    run_ranks(train_all, root)
    return {each: torch.load(root / f"{each}.pt", weights_only=True) for each in (False, True)}  # noqa: TID251


@pytest.mark.parametrize("shards", ["", "itself"])
def test_two_ranks_train_as_a_plain_loop_of_ddp_does(shards, plain, attempts):
    attempts.config = {"recipe": "streamed", "parameters": {"is_plain": True, "shards": shards}}
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    model = state_of(attempts.committed[-1])["model"]
    for name, expected in plain[shards == "itself"].items():
        assert torch.equal(model[name], expected), name


# A pass has 7 items, or 8 of shards, of which rank 1 repeats the last three.
STOPS = [
    ("read-again", 3), ("stateful", 3), ("stateful", 9), ("sharded", 6), ("stateful-sharded", 4),
    ("stateful-sharded", 6), ("enclosing", 5), ("enclosing-sharded", 11), ("workers", 3),
    ("enclosing-sharded", 9), ("sharded", 5), ("stateful-sharded", 12),
    ("several", 13), ("whole-batches", 7), ("in-place", 6),
]  # fmt: skip


@pytest.mark.parametrize(("name", "at"), some_of(STOPS, every=3))
def test_a_stop_changes_nothing(name, at, attempts, undisturbed):
    attempts.config = config_of(name)
    for number in (at, at + 1):
        assert isinstance(attempts.attempt(f"stop 0 {number}"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True, True]
    require_same_end(attempts, undisturbed(name))


@pytest.mark.parametrize("name", ["stateful", "stateful-sharded"])
def test_the_death_of_any_rank_changes_nothing(name, attempts, undisturbed):
    checkpoint = {"every_steps": 2, "every_seconds": 1e9, "self_check": False}
    attempts.config = config_of(name, checkpoint=checkpoint)
    assert isinstance(attempts.attempt("kill 1 4"), Failed)
    assert attempts.attempt("kill 0 7") == -signal.SIGKILL
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed(name))


@pytest.mark.parametrize(("before", "after"), some_of([(2, 1), (1, 2), (2, 3)], every=2))
@pytest.mark.parametrize("name", ["stateful", "read-again"])
def test_another_number_of_ranks_continues_and_says_so(name, before, after, attempts):
    attempts.config = config_of(name)
    assert isinstance(attempts.attempt("stop 0 3", processes=before), Stopped)
    attempts.curve = {}
    assert isinstance(attempts.attempt(processes=after), Succeeded), attempts.ended
    notes = {each.part: each.note for each in attempts.receipts[-1].items if not each.exact}
    assert list(notes) == ["processes"] and notes["processes"].startswith(f"was {before}, is ")
    left, more = 13 - 3 * before, 0  # a state continues between two rounds, if it has to
    if name == "read-again":
        more = 3 * before % after
    assert attempts.committed[-1].step == 3 + -(-(left + more) // after) + 1 + -(-13 // after) + 1


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("name", ["stateful", "read-again"])
def test_another_number_of_ranks_continues_after_a_round_with_a_repeated_batch(
    name, after, attempts
):
    attempts.config = config_of(name)
    assert isinstance(attempts.attempt("stop 0 7"), Stopped)  # 13 batches in 7 rounds
    attempts.curve = {}
    assert isinstance(attempts.attempt(processes=after), Succeeded), attempts.ended
    again = name == "read-again" and after == 3  # one batch lies between two rounds of three
    assert attempts.committed[-1].step == 7 + again + 1 + -(-13 // after) + 1


REFUSED = {
    "stateful-sharded": "the dataset 'train' shards itself, and had 2 ranks; now there are {}",
    "several": "shards itself, and had 2 ranks; now there are {}",
    "several-whole": "the loaders 'loaders' have an iterable dataset, and had 2 ranks; now there",
    "enclosing": "is within an iteration of the loop 'train' over an iterable dataset, and of 2",
}


@pytest.mark.parametrize("now", [1, 3])
@pytest.mark.parametrize("name", REFUSED)
def test_another_number_of_ranks_is_refused_where_it_would_lose_batches(name, now, attempts):
    attempts.config = config_of(name)
    assert isinstance(attempts.attempt("stop 0 3"), Stopped)
    ended = attempts.attempt(processes=now)
    assert isinstance(ended, Failed), ended
    assert REFUSED[name].format(now) in ended.message, ended.message


@pytest.mark.exhaustive
def test_a_place_between_two_rounds_is_kept_by_one_rank(attempts, forkserver, tmp_path):
    other = Attempts(forkserver, tmp_path / "other")
    for each in (attempts, other):
        each.config = config_of("stateful")
        assert isinstance(each.attempt("stop 0 3", processes=1), Stopped)
        each.curve = {}
        assert isinstance(each.attempt("stop 0 4"), Stopped), each.ended
        each.curve = {}
        fault = "stop 0 6" if each is other else ""
        assert isinstance(each.attempt(fault, processes=1), Stopped if fault else Succeeded)
    assert isinstance(other.attempt(processes=1), Succeeded), other.ended
    assert other.receipts[-1].exact
    require_same_end(other, attempts)


def test_shards_are_refused_where_their_number_may_change(attempts):
    attempts.config = config_of("sharded", nodes=2, min_nodes=1, processes=1)
    ended = attempts.attempt()
    assert isinstance(ended, Failed)
    assert "got 1, and the dataset 'train' shards itself by the ranks; allowed: nodes (2)" in (
        ended.message
    )


def test_ranks_that_read_other_examples_are_refused(attempts):
    attempts.config = {"recipe": "streamed", "parameters": {"shards": "unsaid"}}
    ended = attempts.attempt()
    assert isinstance(ended, Failed)
    assert "reads other examples of 'train' than another rank in pass 0" in ended.message
    assert "allowed: a dataset that yields the same examples in every rank, or" in ended.message


def test_the_log_says_where_ranks_read_the_same_shard(attempts):
    attempts.config = {"recipe": "streamed", "parameters": {"shards": "nothing", "epochs": 1}}
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert "all ranks read the same first batch of 'train'" in attempts.output


def test_drop_last_leaves_out_what_is_not_enough_for_all_ranks(attempts):
    parameters = {"is_stateful": True, "drop_last": True, "length": 52}
    attempts.config = {"recipe": "streamed", "parameters": parameters}
    assert isinstance(attempts.attempt("stop 0 7"), Stopped)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert attempts.committed[-1].step == 2 * (6 + 1)  # 13 whole batches
