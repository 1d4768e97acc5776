"""Examples that cannot be decoded, with several ranks: skipped, counted, and exact at stops."""

import signal

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.ranks.oracle import train_plainly
from tests.ranks.processes import run_ranks
from tests.ranks.running import Attempts, require_same_end
from tests.ranks.test_exactness import state_of
from tests.thinning import some_of
from trainops.process.protocol import Failed, Stopped, Succeeded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
DAMAGED = [2, 5, 18]  # the first one in the batch that rank 1 repeats at the end of a pass
LOOP = {"parameters": {"is_plain": True, "damaged": DAMAGED}}
# By the form of the training: what it is with an example that is skipped, and without it.
FORMS = {
    "module": (
        {"recipe": "replicas"},
        {"examples": 23, "damaged": 1}, {"examples": 22},
        {"is_ordered": True, "epochs": 2, "accumulation": 2},
    ),
    "lightning": (
        {"recipe": "ranked_lit"},
        {"skip_undecodable": True}, {},
        {"damaged": True, "max_epochs": 2},
    ),
    "trainer": (
        {"recipe": "ranked_hugging"},
        {"skip_undecodable": True}, {},
        {"damaged": True, "arguments": {
            "train_sampling_strategy": "sequential", "gradient_accumulation_steps": 2}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(forkserver, tmp_path_factory):
    found = Attempts(forkserver, tmp_path_factory.mktemp("undisturbed"), LOOP)
    assert isinstance(found.attempt(), Succeeded), found.ended
    return found


def counts_of(attempts, name="train_undecodable"):
    return {step: each[name] for step, each in sorted(attempts.curve.items()) if name in each}


def without_counts(curve):
    values = {
        step: {name: each for name, each in points.items() if not name.endswith("_undecodable")}
        for step, points in curve.items()
    }
    return {step: points for step, points in values.items() if points}


def test_ranks_train_as_a_plain_loop_without_these_examples_does(undisturbed, tmp_path):
    run_ranks(train_plainly, tmp_path, DAMAGED)
    expected = torch.load(tmp_path / "rank0.pt", weights_only=True)  # noqa: TID251
    model = state_of(undisturbed.committed[-1])["model"]
    for found, wanted in zip(tree_leaves(model), tree_leaves(expected["model"]), strict=True):
        assert torch.equal(found, wanted)


def test_the_count_is_that_of_all_ranks_at_the_steps_of_points(undisturbed):
    """Batches 0, 1 and 4 of 13 have one each; a pass has 7 steps, and a yield after them."""
    assert counts_of(undisturbed) == {2: 2.0, 4: 3.0, 10: 5.0, 12: 6.0}


@pytest.mark.parametrize("at", some_of([3, 1, 2, 9], every=4))
def test_a_stop_changes_nothing(at, attempts, undisturbed):
    attempts.config = LOOP
    for number in (at, at + 2):
        assert isinstance(attempts.attempt(f"stop 0 {number}"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True, True]
    require_same_end(attempts, undisturbed)


def test_the_death_of_any_rank_changes_nothing(attempts, undisturbed):
    checkpoint = {"every_steps": 1, "every_seconds": 1e9, "self_check": False}
    attempts.config = LOOP | {"checkpoint": checkpoint}
    assert isinstance(attempts.attempt("kill 1 2"), Failed)
    assert attempts.attempt("kill 0 9") == -signal.SIGKILL
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed)


def test_without_the_option_the_example_and_its_rank_are_named(attempts):
    parameters = LOOP["parameters"] | {"skip_undecodable": False}
    ended = attempts.attempt(parameters=parameters)
    assert isinstance(ended, Failed)
    assert "of 'train' cannot be loaded: ValueError: no PNG signature" in ended.message


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_training_skips_as_if_the_example_were_missing(
    name, attempts, forkserver, tmp_path_factory
):
    if name != "module":
        pytest.importorskip("lightning.pytorch" if name == "lightning" else "transformers")
    config, skipping, without, common = FORMS[name]
    clean = Attempts(forkserver, tmp_path_factory.mktemp(name), config)
    assert isinstance(clean.attempt(parameters=common | without), Succeeded), clean.ended
    whole = Attempts(forkserver, tmp_path_factory.mktemp(name), config)
    assert isinstance(whole.attempt(parameters=common | skipping), Succeeded), whole.ended
    attempts.config = config | {"parameters": common | skipping}
    for at in (2, 4):
        assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, whole)
    found, wanted = (state_of(each.committed[-1])["model"] for each in (whole, clean))
    assert all(torch.equal(found[key], value) for key, value in wanted.items())
    assert max(counts_of(whole).values()) == 2  # one in each of two epochs
    assert without_counts(whole.curve) == clean.curve
