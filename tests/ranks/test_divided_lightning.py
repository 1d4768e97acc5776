"""LightningModules that are divided over the ranks: equal to whole ones, and exact at resumes."""

import signal

import pytest

from tests.ranks.running import Attempts, require_same_end
from tests.ranks.test_sharding import require_same, rows_in, state_of
from tests.thinning import some_of
from trainops.kinds.loop.rows import joined_parts
from trainops.process.protocol import Failed, Stopped, Succeeded

pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
PLAIN = {"module": "divisible", "scheduler": "step", "max_epochs": 2}
ALL = {
    "module": "divisible", "scheduler": "plateau", "accumulate_grad_batches": 2,
    "val_check_interval": 2, "precision": "bf16-mixed", "max_epochs": 3, "gradient_clip_val": 0.5,
}  # fmt: skip


def config_of(parameters, **changes):
    own = {"recipe": "ranked_lit", "monitor": "val_loss", "sharding": "full"}
    return own | {"parameters": parameters} | changes


@pytest.fixture(scope="module")
def undisturbed(forkserver, tmp_path_factory):
    root = tmp_path_factory.mktemp("divided_lit")
    found = Attempts(forkserver, root, config_of(ALL))
    assert isinstance(found.attempt(), Succeeded), found.ended
    return found


def test_a_divided_module_is_trained_as_a_whole_one(attempts, forkserver, tmp_path):
    """With two ranks, without clipping and windows, no sum has another order."""
    attempts.config = config_of(PLAIN)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    whole = Attempts(forkserver, tmp_path / "whole", config_of(PLAIN, sharding="none"))
    assert isinstance(whole.attempt(), Succeeded), whole.ended
    ours, expected = (state_of(each.committed[-1]) for each in (attempts, whole))
    require_same(ours["model"], expected["model"])
    require_same(ours["best_model"]["model"], expected["best_model"]["model"])
    moments = joined_parts(rows_in(ours, 2), 2)["optimizer_0"]["state"]
    require_same(moments, expected["optimizer_0"]["state"])
    assert attempts.curve == whole.curve


@pytest.mark.exhaustive
# Batches of training at which it is interrupted: 3 per epoch, in windows of 2 and 1.
@pytest.mark.parametrize("at", some_of([3, 1, 2, 4, 5, -1], every=6))
def test_a_stop_changes_nothing(at, attempts, undisturbed):
    attempts.config = config_of(ALL)
    for number in (at, at + 2 if at > 0 else at - 2):
        assert isinstance(attempts.attempt(f"stop 0 {number}"), Stopped)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True, True]
    require_same_end(attempts, undisturbed)


def test_the_death_of_any_rank_changes_nothing(attempts, undisturbed):
    checkpoint = {"every_steps": 2, "every_seconds": 1e9, "self_check": False}
    attempts.config = config_of(ALL, checkpoint=checkpoint)
    assert isinstance(attempts.attempt("kill 1 4"), Failed)
    assert attempts.attempt("kill 0 7") == -signal.SIGKILL
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            "manual",
            "sharding: got full with manual optimization; allowed: none, or automatic optimization",
        ),
        (
            "freezing",
            "recipe: net.4.weight was frozen while training; allowed: with sharding: full, to "
            "freeze parameters before they are divided",
        ),
        (
            "keeping",
            "recipe: the attribute 'norms' of the module contains a DTensor, of which a rank has "
            "its rows only; allowed: whole tensors",
        ),
        (
            "closure",
            "recipe: got LBFGS as 'optimizer_0' with sharding: full; allowed: optimizers without",
        ),
    ],
)
def test_what_a_divided_module_cannot_have_is_refused(module, message, attempts):
    ended = attempts.attempt(**config_of({"module": module}))
    assert isinstance(ended, Failed) and message in ended.message, ended
