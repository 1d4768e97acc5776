"""Trainers of transformers with divided models: equal to whole ones, and exact at resumes."""

import signal

import pytest

from tests.ranks.running import Attempts, require_same_end
from tests.ranks.test_sharding import require_same, rows_in, state_of
from tests.thinning import some_of
from trainops.kinds.loop.rows import joined_parts
from trainops.process.protocol import Failed, Stopped, Succeeded

pytest.importorskip("transformers", reason="the extra transformers is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
# three batches of an evaluation: rank 1 repeats the first, which is counted once
DRAWN = {"gradient_accumulation_steps": 2, "per_device_eval_batch_size": 3, "warmup_steps": 1}


def config_of(sharding="full", **parameters):
    own = {"recipe": "ranked_hugging", "monitor": "eval_loss", "sharding": sharding}
    return own | {"parameters": parameters}


@pytest.fixture(scope="module")
def undisturbed(forkserver, tmp_path_factory):
    root = tmp_path_factory.mktemp("divided_trainer")
    found = Attempts(forkserver, root, config_of(arguments=DRAWN))
    assert isinstance(found.attempt(), Succeeded), found.ended
    return found


def test_a_divided_model_is_trained_as_a_whole_one(attempts, forkserver, tmp_path):
    """With two ranks, without clipping and windows, no sum has another order.

    A fused optimizer rounds the numbers at the end of a tensor in another way.
    """
    arguments = {"max_grad_norm": 0.0, "optim": "adamw_torch"}
    attempts.config = config_of(arguments=arguments)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    whole = Attempts(forkserver, tmp_path / "whole", config_of("none", arguments=arguments))
    assert isinstance(whole.attempt(), Succeeded), whole.ended
    ours, expected = (state_of(each.committed[-1]) for each in (attempts, whole))
    require_same(ours["model"], expected["model"])
    require_same(ours["best_model"]["model"], expected["best_model"]["model"])
    moments = joined_parts(rows_in(ours, 2), 2)["optimizer"]["state"]
    require_same(moments, expected["optimizer"]["state"])
    assert attempts.curve == whole.curve
    for state in (ours, expected):  # the head is tied to the embeddings, and is no buffer
        assert "lm_head.weight" in state["model"]
        assert "lm_head.weight" not in state["rank1"]["job"]["kept"]["model"]


@pytest.mark.exhaustive
# Batches of training at which it is interrupted: 3 per epoch, in windows of 2 and 1.
@pytest.mark.parametrize("at", some_of([2, 1, 3, 4, 5, -1], every=6))
def test_a_stop_changes_nothing(at, attempts, undisturbed):
    attempts.config = config_of(arguments=DRAWN)
    assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert attempts.receipts[-1].exact
    require_same_end(attempts, undisturbed)


def test_the_death_of_any_rank_changes_nothing(attempts, undisturbed):
    checkpoint = {"every_steps": 1, "every_seconds": 1e9, "self_check": False}
    attempts.config = config_of(arguments=DRAWN) | {"checkpoint": checkpoint}
    assert isinstance(attempts.attempt("kill 1 3"), Failed)
    assert attempts.attempt("kill 0 6") == -signal.SIGKILL
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed)


@pytest.mark.exhaustive
def test_callbacks_are_called_and_see_the_norm_of_all_gradients(attempts, forkserver, tmp_path):
    arguments = DRAWN | {"logging_strategy": "steps", "logging_steps": 1}
    config = config_of(callbacks=["recorder", "other-rank"], arguments=arguments)
    whole = Attempts(forkserver, tmp_path / "whole", config)
    assert isinstance(whole.attempt(), Succeeded), whole.ended
    events = state_of(whole.committed[-1])["callbacks"]
    assert "grad_norm" in str(events)
    attempts.config = config
    assert isinstance(attempts.attempt("stop 0 3"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, whole)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"arguments": {"load_best_model_at_end": True, "save_strategy": "epoch"}},
            "recipe: TrainingArguments has load_best_model_at_end=True with sharding: full; "
            "allowed: False",
        ),
        (
            {"callbacks": ["meddler"]},
            "recipe: Meddler.last has changed, and is a DTensor, which cannot be saved; allowed: ",
        ),
    ],
)
def test_what_a_divided_model_cannot_have_is_refused(parameters, message, attempts):
    ended = attempts.attempt(**config_of(**parameters))
    assert isinstance(ended, Failed) and message in ended.message
