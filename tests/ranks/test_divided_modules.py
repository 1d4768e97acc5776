"""Training modules that are divided over the ranks: equal to plain loops, and exact at resumes."""

import signal

import pytest
import torch

from tests.ranks.oracle_divided_module import train_divided
from tests.ranks.processes import run_ranks
from tests.ranks.running import Attempts, require_same_end
from tests.ranks.test_sharding import require_same, rows_in, state_of
from trainops.kinds.loop.rows import joined_parts
from trainops.process.protocol import Failed, Stopped, Succeeded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
PLATEAU = {"name": "ReduceLROnPlateau", "options": {"patience": 0}}
SEVERAL = {
    "optimizers": 2, "rare": True, "epochs": 3, "validate_every_steps": 2, "examples": 38,
    "second_schedule": PLATEAU,
}  # fmt: skip
WINDOWS = {"accumulation": 2, "max_grad_norm": 0.1, "epochs": 2}
ALL = SEVERAL | WINDOWS | {"precision": "bf16", "epochs": 3}


def config_of(parameters, **changes):
    own = {"recipe": "divided_module", "sharding": "full", "monitor": "val_loss"}
    return own | {"parameters": parameters} | changes


@pytest.fixture(scope="module")
def whole(forkserver, tmp_path_factory):
    """Return the attempts of an undisturbed run with all settings."""
    found = Attempts(forkserver, tmp_path_factory.mktemp("all"), config_of(ALL))
    assert isinstance(found.attempt(), Succeeded), found.ended
    return found


def test_a_divided_module_is_trained_as_an_undivided_one(attempts, forkserver, tmp_path):
    """With two ranks and without clipping no sum has another order."""
    attempts.config = config_of(SEVERAL)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    undivided = Attempts(forkserver, tmp_path / "undivided", config_of(SEVERAL, sharding="none"))
    assert isinstance(undivided.attempt(), Succeeded), undivided.ended
    ours, expected = (state_of(each.committed[-1]) for each in (attempts, undivided))
    require_same(ours["model"], expected["model"])
    require_same(ours["best_model"]["model"], expected["best_model"]["model"])
    assert attempts.curve == undivided.curve


def test_windows_and_clipping_are_those_of_a_plain_loop_of_fsdp2(attempts, tmp_path):
    run_ranks(train_divided, tmp_path, WINDOWS)
    expected = torch.load(tmp_path / "rank0.pt", weights_only=True)  # noqa: TID251
    attempts.config = config_of(WINDOWS)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    state = state_of(attempts.committed[-1])
    validated = state["model"]["validated"]
    require_same(state["model"], expected["model"] | {"validated": validated})
    moments = joined_parts(rows_in(state, 2), 2)["optimizer"]["state"]
    require_same(list(moments.values()), expected["moments"])


def test_each_rank_holds_rows_of_every_part(whole):
    by_rank = rows_in(state_of(whole.committed[-1]), 2)
    for parts in by_rank.values():
        assert {"model", "body", "head"} <= parts.keys()
        assert sum("rows" in each for each in parts["model"].values() if isinstance(each, dict))


@pytest.mark.exhaustive
# Batches of training: 5 in an epoch, in windows of 2, 2 and 1; negative: of a validation.
@pytest.mark.parametrize(
    "at", [3, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (4, 6, -1, -3))]
)
def test_a_stop_changes_nothing(at, attempts, whole):
    attempts.config = config_of(ALL)
    assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True]
    require_same_end(attempts, whole)


def test_the_death_of_any_rank_changes_nothing(attempts, whole):
    checkpoint = {"every_steps": 2, "every_seconds": 1e9, "self_check": False}
    attempts.config = config_of(ALL, checkpoint=checkpoint)
    assert isinstance(attempts.attempt("kill 1 6"), Failed)
    assert attempts.attempt("kill 0 12") == -signal.SIGKILL
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, whole)


@pytest.mark.parametrize("after", [1, 3])
def test_another_number_of_ranks_has_the_same_weights_and_moments(after, attempts, whole):
    expected = state_of(whole.committed[-1])
    attempts.committed = [whole.committed[-1]]
    attempts.config = config_of(ALL)
    assert isinstance(attempts.attempt(processes=after), Succeeded), attempts.ended
    inexact = {each.part for each in attempts.receipts[-1].items if not each.exact}
    assert inexact == ({"processes", "sharding"} if after == 1 else {"processes"})
    state = state_of(attempts.committed[-1])
    parts = state if after == 1 else joined_parts(rows_in(state, after), after)
    wanted = joined_parts(rows_in(expected, 2), 2)
    for name in ("model", "body", "head"):
        require_same(parts[name], wanted[name])


REFUSED = {
    "ema": (
        {"ema_decay": 0.9},
        "parameters.ema_decay: got 0.9 with sharding: full; allowed: nothing",
    ),
    "frozen": (
        {"frozen_epochs": 1},
        "recipe: frozen(0) names 'body.0' with sharding: full; allowed: nothing",
    ),
    "closure": (
        {"optimizer": {"name": "LBFGS", "learning_rate": 0.05}},
        "recipe: got LBFGS as 'optimizer' with sharding: full; allowed: optimizers without",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_divided_module_cannot_have_is_refused(name, attempts):
    parameters, message = REFUSED[name]
    ended = attempts.attempt(**config_of(parameters))
    assert isinstance(ended, Failed) and message in ended.message
