"""LightningModules with several ranks equal Lightning's own Trainer, wherever they are stopped."""

import signal

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.ranks.processes import run_ranks
from tests.ranks.running import CONFIG, Attempts, require_same_end
from tests.ranks.test_exactness import state_of
from tests.thinning import some_of
from trainops.kind import KINDS
from trainops.process.forking import fork
from trainops.process.protocol import Failed, Stopped, Succeeded
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.ranks import is_rank_part

pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
# 23 examples in batches of 4: each rank has 3, the last of which is smaller in rank 1
SETTINGS = {
    "everything": {
        "scheduler": "plateau", "accumulate_grad_batches": 2, "val_check_interval": 2,
        "precision": "bf16-mixed", "max_epochs": 3, "gradient_clip_val": 0.5,
    },
    "closure": {"module": "closure", "max_epochs": 2},
    "gathering": {"module": "gathering", "max_epochs": 2},
    "manual": {"module": "manual", "max_epochs": 2},
    "windows": {"module": "windows", "max_epochs": 2},
    "two": {"module": "two", "max_epochs": 2},  # loaders of 6 and of 3 batches
    "iterable": {"iterable": "plain", "accumulate_grad_batches": 4, "max_epochs": 2},
    "sharded": {"iterable": "sharded", "accumulate_grad_batches": 2, "max_epochs": 2},
    # three batches of the validation: rank 1 repeats the first, which is counted once
    "steps": {"max_steps": 4},  # within the second epoch
    "repeated": {"batch_size": 3, "accumulate_grad_batches": 3, "max_epochs": 2},
}  # fmt: skip


def config_of(name, **changes):
    return {"recipe": "ranked_lit", "monitor": "val_loss", "parameters": SETTINGS[name]} | changes


@pytest.fixture(scope="module")
def by_lightning(tmp_path_factory):
    """Return what two processes with Lightning's Trainer trained, by the name of the settings."""
    from tests.ranks.oracle_lit import train_all

    root = tmp_path_factory.mktemp("lightning")
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


def points_of(attempts, name):
    return [each[name] for _, each in sorted(attempts.curve.items()) if name in each]


@pytest.mark.parametrize("name", some_of([*SETTINGS], every=3))
def test_two_ranks_train_as_lightnings_trainer_does(name, by_lightning, undisturbed):
    state, expected = state_of(undisturbed(name).committed[-1]), by_lightning[name]
    assert state["model"].keys() == expected["model"].keys()
    for key, value in expected["model"].items():
        assert torch.equal(state["model"][key], value), key
    # LBFGS keeps its loss, which is the mean over the ranks here and that of a rank there.
    optimizers = expected["optimizers"] if name != "closure" else []
    for number, wanted in enumerate(optimizers):
        found = state[f"optimizer_{number}"]["state"]
        pairs = zip(tree_leaves(found), tree_leaves(wanted), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs), number
    latest = state["logged"]["latest"]
    share = 4 / 8 if name == "steps" else 11 / 23  # of the epoch's examples, those of rank 1
    assert float(latest["rank"]) == pytest.approx(share)
    # else the validated weights are not the last
    if not {"val_check_interval", "max_steps"} & SETTINGS[name].keys():
        for loss, value in expected["losses"].items():
            assert float(latest[loss]) == pytest.approx(value, rel=1e-5)


# Batches of training at which "everything" is interrupted: 3 per epoch, in windows of 2 and 1.
STOPS = some_of([3, 1, 2, 4, 5, 6, 7], every=7)


def require_stops_change_nothing(name, at, attempts, undisturbed):
    attempts.config = config_of(name)
    for number in (at, at + 2):
        assert isinstance(attempts.attempt(f"stop 0 {number}"), Stopped)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True, True]
    require_same_end(attempts, undisturbed(name))


@pytest.mark.parametrize("at", STOPS)
def test_a_stop_changes_nothing(at, attempts, undisturbed):
    require_stops_change_nothing("everything", at, attempts, undisturbed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["iterable", "sharded"])
def test_a_stop_in_an_iterable_dataset_changes_nothing(name, attempts, undisturbed):
    require_stops_change_nothing(name, 2, attempts, undisturbed)


@pytest.mark.exhaustive
def test_a_stop_with_gradients_that_are_held_changes_nothing(attempts, undisturbed):
    require_stops_change_nothing("windows", 1, attempts, undisturbed)


def test_the_death_of_any_rank_changes_nothing(attempts, undisturbed):
    checkpoint = {"every_steps": 2, "every_seconds": 1e9, "self_check": False}
    attempts.config = config_of("everything", checkpoint=checkpoint)
    assert isinstance(attempts.attempt("kill 1 4"), Failed)
    assert attempts.attempt("kill 0 7") == -signal.SIGKILL
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed("everything"))


@pytest.mark.exhaustive
def test_a_stop_within_a_validation_changes_nothing(attempts, undisturbed):
    attempts.config = config_of("repeated")
    for at in (-1, -3):
        assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped)
        assert "validation: 1 of 2 done" in attempts.committed[-1].state["place"]
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    require_same_end(attempts, undisturbed("repeated"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", some_of([1, 3], every=2))
def test_a_training_continues_with_another_number_of_ranks(after, attempts):
    attempts.config = config_of("repeated")
    assert isinstance(attempts.attempt("stop 0 -1"), Stopped)
    assert isinstance(attempts.attempt(processes=after), Succeeded), attempts.ended
    items = attempts.receipts[-1].items
    notes = {item.part: item.note for item in items if not item.exact}
    assert notes.pop("processes").startswith(f"was 2, is {after}: ")
    assert not notes or torch.cuda.is_available()  # one process has the GPU, two had the CPU
    # The place of three ranks is before the last batch of the epoch, which validates again.
    assert len(points_of(attempts, "val_loss")) == max(2, after)


def measured(attempts, *faults, **changes):
    """Train with torchmetrics, whose validations have three batches; return the points of them."""
    parameters = SETTINGS["repeated"] | {"module": "measured"}
    attempts.config = config_of("repeated", parameters=parameters, log_every_steps=1)
    for fault in faults:
        assert isinstance(attempts.attempt(fault), Stopped), attempts.ended
    assert isinstance(attempts.attempt(**changes), Succeeded), attempts.ended
    names = ("val_seen", "val_squares", "val_loss")
    points = [each for _, each in sorted(attempts.curve.items()) if "val_seen" in each]
    return [[each[name] for name in names] for each in points]


@pytest.mark.parametrize("faults", [(), ("stop 0 -1", "stop 0 -3")])
def test_a_metric_sees_each_example_of_a_validation_once(attempts, faults):
    found = measured(attempts, *faults)
    assert [number for number, *_ in found] == [7, 7]  # rank 1 repeats a batch
    for _, squares, loss in found:  # sums of float32, in another order
        assert squares == pytest.approx(loss, rel=1e-5)
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True] * len(faults)


@pytest.mark.exhaustive
@pytest.mark.parametrize("processes", [1, 3])
def test_metrics_and_means_have_seen_all_with_another_number_of_ranks(
    attempts, undisturbed, processes
):
    """Rank 0 has seen three examples, rank 1 three others, and one is left."""
    found = measured(attempts, "stop 0 -1", processes=processes)
    assert [number for number, *_ in found] == [7] * max(2, processes)
    # Another number of ranks adds in another order, so these are close only.
    for _, squares, loss in found:
        assert squares == pytest.approx(loss, rel=1e-5)
    whole = points_of(undisturbed("repeated"), "val_loss")
    assert found[0][2] == pytest.approx(whole[0], rel=1e-6)
    # one rank alone logs none; of three, the others have the last of the three batches after it
    others = points_of(attempts, "val_others")
    assert others == ([3] if processes == 1 else [4] * len(found))


@pytest.mark.exhaustive
def test_a_state_says_for_how_many_ranks_its_sums_are(attempts):
    measured(attempts, "stop 0 -1", processes=3)
    stopped, *_, ended = map(state_of, attempts.committed)
    for state, num_ranks in ((stopped, 2), (ended, 3)):
        others = [part["job"]["kept"] for name, part in state.items() if is_rank_part(name)]
        found = [each["logged"]["num_ranks"] for each in (state, *others)]
        assert found == [num_ranks] * num_ranks


@pytest.mark.exhaustive
def test_a_fork_of_as_many_ranks_keeps_metrics_that_cannot_be_merged(attempts, tmp_path):
    parameters = SETTINGS["repeated"] | {"module": "correlated"}
    attempts.config = CONFIG | config_of("repeated", parameters=parameters)
    assert isinstance(attempts.attempt("stop 0 -1"), Stopped)
    (source,) = attempts.committed
    alone, two = (
        KINDS["loop"].parse_config(attempts.config | {"processes": number}) for number in (1, 2)
    )

    def forked(after):
        return fork(
            KINDS["loop"], source=Candidate(source.path, source.digest), before=two, after=after,
            inputs={}, store=CheckpointStore(tmp_path / "fork", identity={"attempt": 0}),
        )  # fmt: skip

    with pytest.raises(IncompatibleState, match=r"PearsonCorrCoef 'correlation' is not merged"):
        forked(alone)
    copy = Attempts(attempts.forkserver, tmp_path / "fork", attempts.config, [forked(two)])
    for each in (attempts, copy):
        assert isinstance(each.attempt(), Succeeded), each.ended
    assert copy.receipts[0].exact
    copy.curve = attempts.curve | copy.curve
    require_same_end(copy, attempts)


@pytest.mark.exhaustive
def test_lists_are_refused_where_one_of_more_ranks_has_seen_no_batch(attempts):
    parameters = SETTINGS["repeated"] | {"module": "listing"}
    attempts.config = config_of("repeated", parameters=parameters)
    assert isinstance(attempts.attempt("stop 0 -1"), Stopped), attempts.ended
    ended = attempts.attempt(processes=4)  # of three batches, two are seen
    problem = "the metric 'val_area' has seen no batch of the validation in a process"
    assert isinstance(ended, Failed)
    assert f"{problem}; allowed: as many processes as before, or another" in ended.message, ended
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended


def test_a_rank_that_stops_early_stops_all(attempts):
    parameters = {"fault": "stops", "max_epochs": 30}
    ended = attempts.attempt(recipe="ranked_lit", parameters=parameters)
    assert isinstance(ended, Succeeded), ended
    state = state_of(attempts.committed[-1])
    assert state["progress"]["global_step"] == 2  # of three in an epoch
    # Both have 8 examples. Data are prepared in rank 0, whose random numbers stay the same.
    latest = state["logged"]["latest"]
    assert float(latest["prepared"]) == 0.5
    assert float(latest["drawn"]) == pytest.approx(float(latest["drawn_first"]), rel=1e-12)


REFUSED = {
    "interval": (
        {"parameters": {"accumulate_grad_batches": 2, "val_check_interval": 3}},
        "parameters.val_check_interval: got 3 with accumulate_grad_batches 2 with 2 processes; "
        "allowed: multiples of 2",
    ),
    "norm": (
        {"parameters": {"fault": "sync_norm"}},
        "recipe: the module has a SyncBatchNorm as 'norm' with 2 processes",
    ),
    "frozen": (
        {"parameters": {"fault": "frozen"}},
        "recipe: net.4.weight is trained, but was frozen before the ranks were connected",
    ),
    "backward": (
        {"parameters": {"module": "windows", "fault": "plain_backward"}},
        "recipe: the gradient of body.bias is not averaged over the ranks; allowed: "
        "self.manual_backward(loss)",
    ),
    "lists": (
        {"parameters": {"module": "correlated", "batch_size": 8}},  # one batch of a validation
        "recipe: the metric 'val_area' has seen no batch of the validation in a process; allowed: "
        "as many batches as processes, or metrics without lists",
    ),
}


@pytest.mark.parametrize("name", some_of([*REFUSED], every=3))
def test_what_ranks_of_a_lightning_module_cannot_have_is_refused(name, attempts):
    config, message = REFUSED[name]
    ended = attempts.attempt(recipe="ranked_lit", **config)
    assert isinstance(ended, Failed) and message in ended.message, ended
