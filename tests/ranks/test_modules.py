"""Training modules with several ranks equal a plain loop, wherever they are interrupted."""

import signal

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.loop.pair import Parameters
from tests.ranks.oracle_module import train_all
from tests.ranks.processes import run_ranks
from tests.ranks.running import Attempts, require_same_end
from tests.ranks.test_exactness import state_of
from tests.thinning import some_of
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.module.requirements import require_ranks
from trainops.kinds.loop.run import Run
from trainops.process.protocol import Failed, Stopped, Succeeded
from trainops.runtime.errors import InputError
from trainops.runtime.ranks import Devices

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
RATE = {"optimizer": {"learning_rate": 0.05}}
PLATEAU = {"name": "ReduceLROnPlateau", "options": {"patience": 0}}
SETTINGS = {
    name: RATE | given
    for name, given in {
        # 22 examples in batches of 4: the last batch has 2, and is only that of rank 1
        "accumulation": {"accumulation": 2, "max_grad_norm": 0.1, "epochs": 2},
        "everything": {
            "optimizers": 2, "rare": True, "accumulation": 2, "ema_decay": 0.7, "epochs": 3,
            "frozen_epochs": 1, "precision": "bf16", "validate_every_steps": 2,
            "second_schedule": PLATEAU, "max_grad_norm": 0.5, "examples": 38,
        },
        "early": {"epochs": 30, "patience": 2},
        # three batches of each loader: rank 1 repeats the first, which a validation counts once
        "repeated": {"batch_size": 3, "examples": 8, "epochs": 2, "accumulation": 3},
        # six batches: both ranks have three
        "iterable": {"iterable": "plain", "accumulation": 2, "epochs": 2},
        "closure": {
            "optimizer": {"name": "LBFGS", "learning_rate": 0.05, "options": {"max_iter": 3}},
            "accumulation": 2, "epochs": 2,
        },
    }.items()
}  # fmt: skip


def config_of(name, **changes):
    return {"recipe": "replicas", "monitor": "val_loss", "parameters": SETTINGS[name]} | changes


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return what two processes with plain loops trained, by the name of the settings."""
    root = tmp_path_factory.mktemp("plain")
    run_ranks(train_all, root, SETTINGS)
    return {name: torch.load(root / f"{name}.pt", weights_only=True) for name in SETTINGS}  # noqa: TID251


@pytest.fixture(scope="module")
def undisturbed(forkserver, tmp_path_factory):
    found = {}

    def run(name):
        if name not in found:
            found[name] = Attempts(forkserver, tmp_path_factory.mktemp(name), config_of(name))
            assert isinstance(found[name].attempt(), Succeeded), found[name].ended
        return found[name]

    return run


def is_same(one, other):
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def losses_of(attempts):
    return [each["val_loss"] for _, each in sorted(attempts.curve.items()) if "val_loss" in each]


@pytest.mark.parametrize("name", some_of([*SETTINGS], every=2))
def test_two_ranks_train_a_module_as_a_plain_loop_of_ddp_does(name, plain, undisturbed):
    state, expected = state_of(undisturbed(name).committed[-1]), plain[name]
    names = ["body", "head"] if SETTINGS[name].get("optimizers") == 2 else ["optimizer"]
    found = {"model": state["model"], "optimizers": [state[each]["state"] for each in names]}
    if "ema_decay" in SETTINGS[name]:
        parameters = expected["average"]
        found["average"] = {each: state["average"][each] for each in parameters}
    for part, given in found.items():
        pairs = zip(tree_leaves(given), tree_leaves(expected[part]), strict=True)
        assert all(is_same(one, other) for one, other in pairs), part
    assert losses_of(undisturbed(name))[-1] == expected["losses"][-1]
    assert state["early_stopping"]["best"] in (None, min(expected["losses"]))


# Batches of training at which "everything" is interrupted: 5 per epoch, in windows of 2, 2 and 1.
STOPS = some_of([3, 2, 4, 5, 6, 7, 8, 9, 10, 11], every=10)


@pytest.mark.parametrize("at", STOPS)
def test_a_stop_changes_nothing(at, attempts, undisturbed):
    attempts.config = config_of("everything")
    for number in (at, at + 3):
        assert isinstance(attempts.attempt(f"stop 0 {number}"), Stopped)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True, True]
    require_same_end(attempts, undisturbed("everything"))


def test_a_stop_with_an_iterable_dataset_changes_nothing(attempts, undisturbed):
    attempts.config = config_of("iterable")
    for at in (2, -1):
        assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True, True]
    require_same_end(attempts, undisturbed("iterable"))


def measured(attempts, *faults, **changes):
    """Train with torchmetrics, whose validation has three batches; return the points of them."""
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    attempts.config = config_of("repeated", log_every_steps=1)
    attempts.config["parameters"] = SETTINGS["repeated"] | {"is_measured": True}
    for fault in faults:
        assert isinstance(attempts.attempt(fault), Stopped), attempts.ended
    assert isinstance(attempts.attempt(**changes), Succeeded), attempts.ended
    names = ("val_examples", "val_error", "val_loss")
    points = [each for _, each in sorted(attempts.curve.items()) if "val_error" in each]
    return [[each[name] for name in names] for each in points]


@pytest.mark.exhaustive
@pytest.mark.parametrize("faults", [(), ("stop 0 -1", "stop 0 -3")])
def test_a_metric_sees_each_example_of_a_validation_once(attempts, faults):
    found = measured(attempts, *faults)
    assert [number for number, *_ in found] == [7, 7]  # rank 1 repeats a batch
    for _, error, loss in found:
        assert error == pytest.approx(loss, rel=1e-5)
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True] * len(faults)


@pytest.mark.exhaustive
@pytest.mark.parametrize("processes", [1, 3])
def test_a_metric_has_seen_all_with_another_number_of_ranks(attempts, processes):
    """Rank 0 has seen three examples, rank 1 three others, and one is left."""
    found = measured(attempts, "stop 0 -1", processes=processes)
    assert [number for number, *_ in found] == [3 + 3 + 1, 7]
    for _, error, loss in found:
        assert error == pytest.approx(loss, rel=1e-5)


def test_the_death_of_any_rank_changes_nothing(attempts, undisturbed):
    checkpoint = {"every_steps": 2, "every_seconds": 1e9, "self_check": False}
    attempts.config = config_of("everything", checkpoint=checkpoint)
    assert isinstance(attempts.attempt("kill 1 6"), Failed)
    assert attempts.attempt("kill 0 12") == -signal.SIGKILL
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed("everything"))


@pytest.mark.exhaustive
def test_an_iterable_validation_counts_each_batch_once(attempts, forkserver, tmp_path):
    """Three batches: rank 1 repeats the last one."""
    given = SETTINGS["repeated"] | {"is_validation_iterable": True}
    attempts.config = config_of("repeated", parameters=given)
    whole = Attempts(forkserver, tmp_path / "whole", attempts.config)
    assert isinstance(whole.attempt(), Succeeded), whole.ended
    for at in (-1, -4):
        assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped), attempts.ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, whole)
    for after in (1, 3):  # a fork within the first validation
        forked = Attempts(forkserver, tmp_path / f"{after}", attempts.config)
        assert isinstance(forked.attempt("stop 0 -1"), Stopped), forked.ended
        assert isinstance(forked.attempt(processes=after), Succeeded), forked.ended
        # not equal: another number of ranks adds up the same losses in another order
        assert losses_of(forked)[0] == pytest.approx(losses_of(whole)[0], rel=1e-12)


def test_a_stop_within_a_validation_changes_nothing(attempts, undisturbed):
    attempts.config = config_of("repeated")
    for at in (-1, -4):
        assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped)
        assert "validation: " in attempts.committed[-1].state["place"]
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed("repeated"))


@pytest.mark.parametrize("after", [1, 3])
def test_a_validation_continues_with_another_number_of_ranks(after, attempts, undisturbed):
    """Each batch is counted once, by the weights that the validation began with."""
    attempts.config = config_of("repeated")
    assert isinstance(attempts.attempt("stop 0 -1"), Stopped)
    assert isinstance(attempts.attempt(processes=after), Succeeded), attempts.ended
    (item,) = [item for item in attempts.receipts[-1].items if not item.exact]
    assert item.part == "processes" and item.note.startswith(f"was 2, is {after}: ")
    found, wanted = losses_of(attempts)[0], losses_of(undisturbed("repeated"))[0]
    assert found == pytest.approx(wanted, rel=1e-12)  # sums have another order


REFUSED = {
    "compile": (
        {"parameters": {"compile": True}},
        "parameters.compile: got true with 2 processes; allowed: false",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_ranks_of_a_module_cannot_have_is_refused(name, attempts):
    config, message = REFUSED[name]
    ended = attempts.attempt(recipe="replicas", **config)
    assert isinstance(ended, Failed) and message in ended.message


def test_a_validation_of_several_loaders_is_refused_with_ranks():
    run = Run(
        Course(lambda: None), seed=0, device=torch.device("cpu"), inputs={}, devices=Devices(0, 2)
    )
    loaders = {name: run.loader(name, [1, 2, 3, 4]) for name in ("one", "other")}
    with pytest.raises(InputError, match=r"several loaders as .*validation.* with 2"):
        require_ranks(run, run.loaders(loaders), Parameters())
