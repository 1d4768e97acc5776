"""What a step, an epoch and a metric are in training."""

import math
import re

import pytest
import torch

from tests.engines import toy_model
from tests.engines.contract import CASES, Case, ScriptedSupervisor, attempt
from tests.engines.mutation import load
from trainops.kind import KINDS
from trainops.learning.data import BatchPlan, order, split
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import ConfigError, IncompatibleState, InputError, NonFiniteLoss
from trainops.runtime.loop import Failed, Succeeded

TOY = {"recipe": "toy", "batch_size": 8, "epochs": 2, "device": "cpu"}


def make(**config):
    return KINDS["training"].make_job(KINDS["training"].parse_config({**TOY, **config}))


def toy(**config):
    return Case("training", "here", {**TOY, **config}, stops=())


def run_to_end(job):
    curve = {}
    while job.step < job.total_steps:
        if metrics := job.advance():
            curve[job.step] = dict(metrics)
    return curve


def test_the_order_of_an_epoch_depends_on_seed_and_epoch_alone():
    first = order(1, 0, 100)
    torch.manual_seed(99)
    assert torch.equal(order(1, 0, 100), first)
    assert sorted(first.tolist()) == list(range(100))
    assert not torch.equal(order(1, 1, 100), first)
    assert not torch.equal(order(2, 0, 100), first)


def test_a_split_takes_everyone_once_and_leaves_none_empty():
    for size, fraction in [(2, 0.01), (2, 0.99), (10, 0.2), (7, 0.5)]:
        train, validation = split(size, fraction, seed=3)
        assert len(train) and len(validation)
        assert sorted([*train.tolist(), *validation.tolist()]) == list(range(size))
    assert len(split(10, 0.2, seed=3)[1]) == 2


@pytest.mark.parametrize("batch_size", [1, 3, 8, 38, 100])
@pytest.mark.parametrize("accumulation", [1, 2, 100])
def test_an_epoch_trains_every_example_once(batch_size, accumulation):
    route = BatchPlan(38, batch_size, accumulation)
    indices, seen, next_batch = torch.arange(38), [], 0
    for _ in range(route.steps_per_epoch):
        batches = route.batches(indices, next_batch)
        assert all(0 < len(batch) <= batch_size for batch in batches)
        next_batch += len(batches)
        seen += torch.cat(batches).tolist()
    assert next_batch == route.batches_per_epoch
    assert seen == list(range(38))


def test_the_cursor_counts_steps_batches_and_samples():
    job = make(gradient_accumulation=2)  # 38 examples: batches of 8 8 | 8 8 | 6
    expected = [(0, 2, 1, 16), (0, 4, 2, 32), (1, 0, 3, 38), (1, 2, 4, 54)]
    for epoch, next_batch, steps, samples in expected:
        job.advance()
        assert job.state_dict()["state"]["cursor"] == {
            "epoch": epoch, "next_batch": next_batch,
            "optimizer_steps": steps, "samples_seen": samples,
        }  # fmt: skip
    assert (job.step, job.total_steps, job.place) == (4, 6, "1 of 2 epochs")


def test_accumulated_batches_move_the_weights_as_one_large_batch_would():
    """Also where the last of them is shorter. The toy's noise and its batch norm are not asked."""

    def trained(**config):
        job = make(optimizer="sgd", momentum=0.0, learning_rate=0.1, epochs=1, **config)
        job.trainer.model[1] = torch.nn.Identity()
        job.trainer.model[2] = torch.nn.Identity()
        run_to_end(job)
        return job.trainer.model[0].weight.detach()

    whole = trained(batch_size=38)
    parts = trained(batch_size=8, gradient_accumulation=5)
    assert torch.dist(whole, parts) < 1e-6 < torch.dist(whole, trained(batch_size=8))


def test_points_are_recorded_at_every_few_steps_and_at_the_ends_of_epochs():
    curve = run_to_end(make(log_every_steps=2))  # 5 steps in an epoch
    assert list(curve) == [2, 4, 5, 6, 8, 10]
    at_the_end = {"train_loss", "train_accuracy", "val_loss", "val_accuracy", "learning_rate"}
    assert curve[5].keys() == at_the_end | {"epoch"} and curve[5]["epoch"] == 1
    assert curve[6].keys() == {"train_loss"}


def test_the_json_state_has_what_people_look_for():
    job = make(log_every_steps=2)
    assert job.state_dict()["state"]["val_loss"] is None
    curve = run_to_end(job)
    state = job.state_dict()["state"]
    assert state["epoch"] == 2 and state["global_step"] == 10
    assert state["val_loss"] == state["metric"] == curve[10]["val_loss"]
    assert state["best_val_loss"] == min(curve[5]["val_loss"], curve[10]["val_loss"])
    assert [line["epoch"] for line in state["training_history"]] == [1, 2]
    assert 0 <= state["val_accuracy"] <= 1 and state["learning_rate"] == 1e-3


def test_the_metric_is_only_that_of_the_weights_beside_it():
    job = make()
    for _ in range(5):
        job.advance()
    assert job.state_dict()["state"]["metric"] is not None
    job.advance()
    assert job.state_dict()["state"]["metric"] is None


def test_the_best_model_is_a_copy_of_the_best_epoch():
    job = make(epochs=6, optimizer="sgd", learning_rate=1.0)
    at_epoch = {}
    while job.step < job.total_steps:
        job.advance()
        if job.step % 5 == 0:
            at_epoch[job.step // 5] = freeze(job.state_dict())["model"]
    best = job.result()["best"]
    assert best["epoch"] < 6, "choose another learning rate: the last epoch was the best"
    assert all(
        torch.equal(job.best_models["val_loss"][key], at_epoch[best["epoch"]][key])
        for key in at_epoch[1]
    )
    assert not torch.equal(job.best_models["val_loss"]["0.weight"], job.trainer.model[0].weight)


def test_the_result_is_what_a_person_asks_for():
    job = make(epochs=2)
    run_to_end(job)
    result = job.result()
    assert result["epochs"] == 2 and result["steps"] == 10 and result["samples_seen"] == 76
    assert result["parameters"] == 4 * 6 + 2 * 6 + 6 * 3 + 3
    assert result["artifacts"] == ["model.pt", "optimizer.pt", "best_model.pt"]
    assert result["final"]["epoch"] == 2 and result["best"]["metric"] == "val_loss"
    assert result["stopped_early"] is False


@pytest.mark.parametrize("scheduler", ["cosine", "step", "onecycle", "warmup_cosine"])
def test_schedules_end_low_and_never_go_negative(scheduler):
    job = make(epochs=4, scheduler=scheduler, scheduler_step_epochs=1, learning_rate=0.1)
    rates = []
    while job.step < job.total_steps:
        rates.append(job.trainer.learning_rate)
        job.advance()
    assert all(rate > 0 for rate in rates)
    assert rates[-1] < 0.01 < max(rates) <= 0.1


def test_a_loss_that_explodes_never_reaches_the_weights(tmp_path):
    case, supervisor = toy(parameters={"explode_at_batch": 8}), ScriptedSupervisor()
    outcome = attempt(case, tmp_path, supervisor, every_steps=3)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, NonFiniteLoss) and outcome.error.step == 8
    assert math.isnan(outcome.error.value)
    assert re.search(r"\(examples \d+, .*\)$", str(outcome.error))
    last = supervisor.checkpoints[-1]
    assert last.step in (6, 7)  # a failure checkpoint where time allowed one
    assert all(bool(torch.isfinite(each).all()) for each in load(last)["model"].values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_a_loss_that_explodes_reaches_no_checkpoint(tmp_path):
    case, supervisor = toy(device="cuda", parameters={"explode_at_batch": 8}), ScriptedSupervisor()
    outcome = attempt(case, tmp_path, supervisor, every_steps=3)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, NonFiniteLoss) and outcome.error.step >= 8
    last = supervisor.checkpoints[-1]
    assert last.step in (6, 7)
    assert all(bool(torch.isfinite(each).all()) for each in load(last)["model"].values())


def test_examples_that_are_not_finite_are_named():
    job = make(batch_size=8)
    bad = int(job._epoch_order()[3])
    job.trainer.train.inputs[0][bad] = math.inf
    with pytest.raises(NonFiniteLoss, match=rf"in step 1 \(example {bad} not finite\)"):
        job.advance()


def test_a_gradient_that_explodes_never_reaches_the_weights():
    job = make(max_grad_norm=1.0)
    before = job.trainer.model[4].weight.detach().clone()
    job.trainer.model[4].weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(NonFiniteLoss, match="gradient"):
        job.advance()
    assert torch.equal(job.trainer.model[4].weight, before)


def test_on_a_gpu_a_bad_loss_is_found_before_it_could_be_frozen():
    """The check that CUDA needs, where losses are only looked at now and then."""
    job = make(log_every_steps=3)
    job.advance()
    job.device = torch.device("meta")  # anything but the CPU
    job.logged_loss.sums += math.nan
    with pytest.raises(NonFiniteLoss):
        job.state_dict()
    with pytest.raises(NonFiniteLoss):
        job._log()


def test_an_error_in_the_model_is_the_jobs(tmp_path):
    outcome = attempt(toy(parameters={"raise_at_batch": 2}), tmp_path)
    assert isinstance(outcome, Failed) and str(outcome.error) == "boom"


def test_a_metric_that_is_not_measured_cannot_be_monitored():
    with pytest.raises(InputError, match="toy measures train_loss, train_accuracy, val_loss"):
        make(monitor="val_dice")


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    with pytest.raises(ConfigError, match="no usable GPU"):
        choose_device("cuda")


def damage(part, *keys, **values):
    """Return what puts these values at this place of a state."""

    def apply(state):
        place = state[part]
        for key in keys:
            place = place[key]
        place.update(values.get("values", values))

    return apply


def lack(part, *keys):
    """Return what takes this place out of a state."""

    def apply(state):
        *path, last = part, *keys
        place = state
        for key in path:
            place = place[key]
        del place[last]

    return apply


BROKEN = {
    "no model": lack("model"),
    "another layer": damage("model", values={"9.weight": torch.ones(1)}),
    "another width": damage("model", values={"0.weight": torch.ones(2, 4)}),
    "another type": damage("model", values={"0.weight": torch.ones(6, 4).double()}),
    "no tensor": damage("model", values={"0.weight": 3}),
    "no optimizer": lack("optimizer", 0),
    "an optimizer that is none": lambda state: state["optimizer"].__setitem__(0, 3),
    "a moment of another shape": damage("optimizer", 0, "state", 0, exp_avg=torch.ones(7)),
    "a moment of no parameter": damage("optimizer", 0, "state", values={77: {}}),
    "another optimizer": lack("optimizer", 0, "param_groups", 0, "betas"),
    "a schedule": lambda state: state.update(scheduler=[{"last_epoch": 3}]),
    "another recipe": damage("state", recipe="digits"),
    "no cursor": lack("state", "cursor"),
    "a cursor beyond the data": damage("state", "cursor", next_batch=400),
    "a cursor with more": damage("state", "cursor", more=1),
    "positions that disagree": damage("state", "cursor", samples_seen=1),
    "no history": lack("history"),
    "a history that is none": lambda state: state.update(history=3),
    "other newest lines": damage("state", training_history=3),
    "a newest line without the metric": lack("state", "training_history", 0, "val_loss"),
    "no means": lack("state", "epoch_means"),
    "no best model": lack("best_model"),
    "a best model of another shape": damage("best_model", values={"0.weight": torch.ones(1)}),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_state_that_does_not_fit_changes_nothing(broken):
    donor, job = make(seed=1), make(seed=2)
    for _ in range(7):
        donor.advance()
    state = freeze(donor.state_dict())
    BROKEN[broken](state)
    before = freeze(job.state_dict())
    with pytest.raises(IncompatibleState):
        job.load_state_dict(state)
    after = freeze(job.state_dict())
    assert after["state"] == before["state"]
    assert all(torch.equal(after["model"][key], before["model"][key]) for key in before["model"])


def test_constants_of_a_checkpoint_hold_even_if_measuring_gives_others_now(tmp_path, monkeypatch):
    case = next(case for case in CASES if case.name == "two-optimizers")
    whole, first, second = ScriptedSupervisor(), ScriptedSupervisor(at=6), ScriptedSupervisor()
    attempt(case, tmp_path / "whole", whole)
    attempt(case, tmp_path / "first", first)
    original = toy_model.build

    def measures_otherwise(parameters, context):
        if not context.constants:
            context = type(context)(context.seed, context.inputs, {"offset": 9.0})
        return original(parameters, context)

    monkeypatch.setattr(toy_model, "build", measures_otherwise)
    attempt(case, tmp_path / "second", second, resume=first.checkpoints)
    assert second.checkpoints[-1].artifacts == whole.checkpoints[-1].artifacts


def test_a_checkpoint_of_another_width_fails_the_operation_and_says_why(tmp_path):
    donor = make()
    donor.advance()
    state = freeze(donor.state_dict()) | {"random": freeze(reproducibility.state_dict())}
    store = CheckpointStore(tmp_path / "donor", identity={})
    checkpoint = store.write(CheckpointType.PERIODIC, step=1, state=state)
    outcome = attempt(toy(parameters={"width": 9}), tmp_path, resume=[checkpoint])
    assert isinstance(outcome, Failed) and isinstance(outcome.error, IncompatibleState)
    assert "model.0.weight" in str(outcome.error)


def test_a_checkpoint_of_other_examples_in_as_many_batches_is_refused():
    """Within the first epoch no other number in the state shows it."""
    donor, of_fewer = (make(parameters={"examples": number}) for number in (50, 48))
    donor.advance()
    state = freeze(donor.state_dict())
    had, has = (job.trainer.route.num_examples for job in (donor, of_fewer))
    assert had > has and -(-had // 8) == -(-has // 8)
    message = f"the training had {had} examples; now it has {has}; allowed: the data that give"
    with pytest.raises(IncompatibleState, match=message):
        of_fewer.load_state_dict(state)
    del state["state"]["num_examples"]  # as in older versions
    of_fewer.load_state_dict(state)
    assert of_fewer.step == 1


@pytest.mark.slow
def test_digits_are_learned(tmp_path):
    config = {"recipe": "digits", "epochs": 8, "batch_size": 64, "learning_rate": 4e-3,
              "scheduler": "onecycle", "device": "cpu"}  # fmt: skip
    outcome = attempt(Case("training", "digits", config, stops=()), tmp_path)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["final"]["val_accuracy"] > 0.97
