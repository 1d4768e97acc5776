"""Trainers of transformers with several ranks end as under torchrun, also when interrupted."""

import signal

import pytest
import torch

from tests.ranks.processes import run_ranks
from tests.ranks.running import Attempts, require_same_end
from tests.ranks.test_exactness import state_of
from tests.thinning import some_of
from trainops.process.protocol import Failed, Stopped, Succeeded

pytest.importorskip("transformers", reason="the extra transformers is not installed")
from tests.ranks.oracle_trainer import train_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
# 22 examples: an odd number of batches of 2, and the last of 4 has 2 examples, all for rank 1
ORDERED = {
    "train_sampling_strategy": "sequential", "per_device_train_batch_size": 2,
    "per_device_eval_batch_size": 1,
}  # fmt: skip
CASES = {
    "plain": ORDERED,
    "accumulated": ORDERED | {"gradient_accumulation_steps": 4, "max_grad_norm": 0.1},
    "by-steps": ORDERED | {"eval_strategy": "steps", "eval_steps": 3, "max_steps": 8},
}
KINDS = {"iterable": "stateful", "sized": "sized"}
CASES |= {
    "iterable": ORDERED | {"max_steps": 5, "eval_strategy": "steps", "eval_steps": 2},
    "sized": ORDERED | {"max_steps": 5, "eval_strategy": "no"},
}
# three batches of an evaluation: rank 1 repeats the first, which is counted once
DRAWN = {"gradient_accumulation_steps": 2, "per_device_eval_batch_size": 3, "warmup_steps": 1}


def config_of(**parameters):
    return {"recipe": "ranked_hugging", "monitor": "eval_loss", "parameters": parameters}


@pytest.fixture(scope="module")
def under_torchrun(tmp_path_factory):
    """Return what two processes train by Trainer.train(), by the name of the case."""
    root = tmp_path_factory.mktemp("torchrun")
    run_ranks(train_all, root, CASES, KINDS)
    return {name: torch.load(root / f"{name}.pt", weights_only=True) for name in CASES}  # noqa: TID251


@pytest.fixture(scope="module")
def undisturbed(forkserver, tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed")
    found = Attempts(forkserver, root, config_of(arguments=DRAWN))
    assert isinstance(found.attempt(), Succeeded), found.ended
    return found


def evaluations(attempts):
    return [each for _, each in sorted(attempts.curve.items()) if "eval_loss" in each]


@pytest.mark.parametrize("name", some_of([*CASES], every=2))
def test_two_ranks_train_as_trainer_train_does(name, under_torchrun, attempts):
    attempts.config = config_of(dropout=0.0, arguments=CASES[name], iterable=KINDS.get(name, ""))
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    model, expected = state_of(attempts.committed[-1])["model"], under_torchrun[name]
    for key, value in expected["model"].items():
        assert torch.equal(model[key], value), key
    for found, wanted in zip(evaluations(attempts), expected["evaluated"], strict=True):
        assert found["eval_accuracy"] == wanted["eval_accuracy"]
        # The Trainer's mean is of float32, ours of float64.
        assert found["eval_loss"] == pytest.approx(wanted["eval_loss"], rel=1e-6)


def test_examples_weigh_equally_where_items_are_not_counted(attempts, forkserver, tmp_path_factory):
    """Windows of 16 and 6 examples have the gradients of one batch in one process."""
    alone = Attempts(forkserver, tmp_path_factory.mktemp("alone"))
    for each, divided in ((attempts, {"gradient_accumulation_steps": 2}), (alone, {})):
        size = 4 if divided else 16
        given = ORDERED | {"per_device_train_batch_size": size, "optim": "sgd"} | divided
        each.config = config_of(dropout=0.0, counts_items=False, arguments=given)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert isinstance(alone.attempt(processes=1), Succeeded), alone.ended
    one, other = (state_of(each.committed[-1])["model"] for each in (attempts, alone))
    weights = [name for name in one if name not in ("trained", "evaluated")]
    # Gradients of two ranks and windows are summed in another order than those of one batch.
    assert all(torch.allclose(one[name], other[name], rtol=1e-5, atol=1e-7) for name in weights)


@pytest.mark.exhaustive
# Batches of training at which it is interrupted: 3 per epoch, in windows of 2 and 1.
@pytest.mark.parametrize("at", some_of([2, 1, 3, 4, 5], every=5))
def test_a_stop_changes_nothing(at, attempts, undisturbed):
    attempts.config = config_of(arguments=DRAWN)
    assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert attempts.receipts[-1].exact
    require_same_end(attempts, undisturbed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["plain", "sized"])
def test_a_stop_in_an_iterable_dataset_changes_nothing(kind, attempts, forkserver, tmp_path):
    """Without a length, the last window of an epoch is held; 11 batches, or 6 in each rank."""
    arguments = {"gradient_accumulation_steps": 4, "max_steps": 4, "num_train_epochs": 2}
    if kind == "sized":
        arguments["max_steps"] = -1
    attempts.config = config_of(arguments=ORDERED | arguments, iterable=kind)
    whole = Attempts(forkserver, tmp_path / "whole", attempts.config)
    assert isinstance(whole.attempt(), Succeeded), whole.ended
    assert state_of(whole.committed[-1])["progress"]["step"] == 4
    for at in (2, 8):
        assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, whole)


def test_shards_with_a_length_are_refused(attempts):
    """Each rank would make a schedule by the length of its own."""
    attempts.config = config_of(arguments=ORDERED, iterable="sized", shards_itself=True)
    assert isinstance(attempts.attempt(), Failed)
    assert "got a SizedFlow with a length for 'train'" in attempts.ended.message
    assert "allowed: one without __len__, and max_steps" in attempts.ended.message


def test_the_death_of_any_rank_changes_nothing(attempts, undisturbed):
    checkpoint = {"every_steps": 1, "every_seconds": 1e9, "self_check": False}
    attempts.config = config_of(arguments=DRAWN) | {"checkpoint": checkpoint}
    assert isinstance(attempts.attempt("kill 1 3"), Failed)
    assert attempts.attempt("kill 0 6") == -signal.SIGKILL
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed)


@pytest.mark.exhaustive
def test_a_stop_within_an_evaluation_changes_nothing(attempts, undisturbed):
    attempts.config = config_of(arguments=DRAWN)
    assert isinstance(attempts.attempt("stop 0 -1"), Stopped), attempts.ended
    assert attempts.committed[-1].state["place"].endswith("validation 2 of 2")
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed)


@pytest.mark.exhaustive
def test_a_callback_of_one_rank_stops_all(attempts, forkserver, tmp_path_factory):
    found = Attempts(forkserver, tmp_path_factory.mktemp("at_once"))
    stopped = {"callbacks": ["other-rank", "meddler"], "arguments": DRAWN}
    for each in (attempts, found):
        each.config = config_of(**stopped)
    assert isinstance(found.attempt(), Succeeded), found.ended
    assert state_of(found.committed[-1])["progress"]["step"] == 3
    assert isinstance(attempts.attempt("stop 0 3"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, found)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("after", "num_steps"), some_of([(1, 2 + 3), (3, 2 + 1)], every=2))
def test_epochs_continue_with_another_number_of_ranks(after, num_steps, attempts, undisturbed):
    """An evaluation counts each batch once, and the schedule ends with the last epoch."""
    attempts.config = config_of(arguments=DRAWN)
    assert isinstance(attempts.attempt("stop 0 -1"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(processes=after), Succeeded), attempts.ended
    (item,) = [item for item in attempts.receipts[-1].items if not item.exact]
    assert item.part == "processes" and item.note.startswith(f"was 2, is {after}: ")
    # Sums of another number of ranks have another order.
    assert evaluations(attempts)[0] == pytest.approx(evaluations(undisturbed)[0], rel=1e-12)
    state = state_of(attempts.committed[-1])
    assert state["progress"]["step"] == num_steps
    assert state["optimizer"]["param_groups"][0]["lr"] == 0.0
