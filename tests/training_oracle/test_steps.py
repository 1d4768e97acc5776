"""The training engine against a plain PyTorch loop: weights, rates, moments, points, the best."""

from dataclasses import replace
from itertools import product

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines import test_optimizers, toy_model
from tests.engines.contract import (
    CASES,
    DATASET,
    Case,
    DrawnCase,
    ScriptedSupervisor,
    attempt,
    is_rightly_refused,
    small_pictures,
    small_table,
)
from tests.engines.test_drawn_training import PAIRWISE, TABLES
from tests.thinning import quick_some
from tests.training_oracle import drawn_model
from tests.training_oracle.comparing import (
    make_ingredients,
    make_job,
    parse,
    require_equal,
    require_equal_tensors,
)
from tests.training_oracle.plain import permutation, train
from trainops.kinds.training.config import TrainingConfig
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore

BASE = {"recipe": "drawn", "epochs": 3, "batch_size": 4, "learning_rate": 0.05}
OPTIMIZERS = ["sgd", "adam", "adamw"]
OF_CONTRACT = [case for case in CASES if case.kind == "training"]
SCHEDULES = ["none", "cosine", "step", "onecycle", "warmup_cosine"]


def inputs_of(table, root):
    if table is None:
        return {}
    pq.write_table(table(), root / "table.parquet")
    return {DATASET: root / "table.parquet"}


@pytest.mark.whole
@pytest.mark.parametrize(
    ("optimizer", "scheduler", "clip", "accumulation", "decay"),
    quick_some(list(product(OPTIMIZERS, SCHEDULES, [None, 0.05], [1, 4], [0.0, 0.1])), every=11),
)
def test_every_optimizer_and_schedule(optimizer, scheduler, clip, accumulation, decay):
    """23 examples: five whole batches and a shorter one; of 4 batches in a step, then 2."""
    expected = require_equal({
        **BASE, "optimizer": optimizer, "scheduler": scheduler, "max_grad_norm": clip,
        "gradient_accumulation": accumulation, "weight_decay": decay, "scheduler_step_epochs": 1,
        "scheduler_factor": 0.3, "warmup_fraction": 0.3, "parameters": {"dropout": 0.3},
    })  # fmt: skip
    assert len(expected.steps) == 3 * (6 if accumulation == 1 else 2)
    sizes = [step.num_examples for step in expected.steps[: len(expected.steps) // 3]]
    assert sizes == ([4, 4, 4, 4, 4, 3] if accumulation == 1 else [16, 7])


@pytest.mark.parametrize(
    ("loss", "validation"),
    quick_some([*product(["entropy", "squared", "smooth", "mixed"], [0, 1, 9])], every=2),
)
def test_every_loss_with_and_without_validation(loss, validation):
    parameters = {"loss": loss, "validation": validation, "loss_factor": 2.5}
    monitor = "val_worst" if validation else "train_worst"
    require_equal({**BASE, "parameters": parameters, "monitor": monitor, "log_every_steps": 4})


@pytest.mark.slow
@pytest.mark.parametrize("case", quick_some(OF_CONTRACT, every=5), ids=str)
def test_every_case_of_the_contract(case, tmp_path):
    require_equal({"seed": 7, **case.config}, inputs_of(case.table, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "table"),
    [
        ({"recipe": "digits", "epochs": 1, "batch_size": 400, "optimizer": "sgd"}, None),
        ({"recipe": "tabular", "parameters": {"dataset": DATASET, "target": "price"},
          "epochs": 2, "batch_size": 7, "gradient_accumulation": 2, "max_grad_norm": 0.1,
          "monitor": "val_absolute_error"}, small_table),
        ({"recipe": "segmentation", "parameters": {"dataset": DATASET, "channels": 2},
          "epochs": 2, "batch_size": 3, "max_grad_norm": 0.1, "monitor": "val_dice",
          "mode": "max"}, small_pictures),
    ],
    ids=["digits", "tabular", "segmentation"],
)  # fmt: skip
def test_built_in_recipes_with_losses_by_their_formulas(config, table, tmp_path):
    require_equal(config, inputs_of(table, tmp_path))


@pytest.mark.parametrize("number", quick_some(range(len(PAIRWISE)), every=8))
def test_every_two_values_of_two_fields(number, tmp_path):
    config = {**PAIRWISE[number], "resources": {}}
    table = TABLES.get(config["recipe"])
    if not is_rightly_refused(DrawnCase("training", "pairwise", config, (), table), tmp_path):
        require_equal(config, inputs_of(table, tmp_path))


WITHOUT_EFFECT = {"device", "threads", "deterministic", "exact", "checkpoint", "restart", "limits",
                  "resources", "monitors"}  # fmt: skip
METRICS = {True: ["val_loss", "val_worst", "train_loss", "train_worst"],
           False: ["train_loss", "train_worst"]}  # fmt: skip


@st.composite
def configs(draw):
    """Draw every field that training depends on, from its whole range where that is feasible."""
    has_validation = draw(st.booleans())
    return {
        "recipe": "drawn",
        "parameters": {
            "examples": draw(st.integers(1, 40)),
            "validation": draw(st.integers(1, 12)) if has_validation else 0,
            "loss": draw(st.sampled_from(["entropy", "squared", "smooth", "mixed"])),
            "loss_factor": draw(st.sampled_from([1.0, 0.01, 7.5])),
            "dropout": draw(st.sampled_from([0.0, 0.4])),
        },
        "seed": draw(st.integers(0, 2**63 - 1)),
        "epochs": draw(st.integers(1, 4)),
        "batch_size": draw(st.integers(1, 41)),
        "learning_rate": draw(st.one_of(st.floats(1e-5, 0.5), st.floats(0.5, 100.0))),
        "weight_decay": draw(st.one_of(st.just(0.0), st.floats(0.0, 10.0))),
        "optimizer": draw(st.sampled_from(OPTIMIZERS)),
        "momentum": draw(st.one_of(st.just(0.0), st.floats(0.0, 0.999))),
        "scheduler": draw(st.sampled_from(SCHEDULES)),
        "scheduler_step_epochs": draw(st.integers(1, 5)),
        "scheduler_factor": draw(st.floats(0.01, 0.99)),
        "warmup_fraction": draw(st.floats(0.0, 0.99)),
        "gradient_accumulation": draw(st.integers(1, 9)),
        "max_grad_norm": draw(st.one_of(st.none(), st.floats(1e-4, 1e3))),
        "early_stopping_patience": draw(st.one_of(st.none(), st.integers(1, 3))),
        "monitor": draw(st.sampled_from(METRICS[has_validation])),
        "mode": draw(st.sampled_from(["min", "max"])),
        "log_every_steps": draw(st.integers(1, 9)),
    }


DRAWN = settings(
    deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip


@pytest.mark.slow
@settings(DRAWN, max_examples=25)
@given(config=configs())
def test_drawn_configs(config):
    require_equal(config)


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
@settings(DRAWN, max_examples=3000)
@given(config=configs())
def test_many_drawn_configs(config):
    require_equal(config)


@settings(DRAWN, max_examples=1)
@given(config=configs())
def test_every_field_is_drawn(config):
    assert config.keys() | WITHOUT_EFFECT == TrainingConfig.model_fields.keys()


CAN = sorted(test_optimizers.OPTIMIZERS.keys() - test_optimizers.CANNOT - {"SparseAdam"})


@pytest.mark.parametrize("name", quick_some(CAN, every=5))
def test_optimizers_of_a_recipe(name, monkeypatch):
    use(monkeypatch, optimizers=test_optimizers.OPTIMIZERS[name])
    require_equal(TOY)


@pytest.mark.parametrize("name", quick_some(test_optimizers.SCHEDULERS, every=6))
def test_schedules_of_a_recipe(name, monkeypatch):
    use(
        monkeypatch,
        optimizers=test_optimizers.OPTIMIZERS["SGD"],
        schedulers=lambda made, total: [test_optimizers.SCHEDULERS[name](made[0])],
    )
    require_equal(TOY)


TOY = {"recipe": "toy", "batch_size": 8, "epochs": 4, "seed": 7, "max_grad_norm": 0.5}


def use(monkeypatch, **ingredients):
    build = toy_model.build
    monkeypatch.setattr(toy_model, "build", lambda *given: replace(build(*given), **ingredients))


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(), (2, 5, 9)], ids=["whole", "stopped"])
def test_the_last_checkpoint_of_a_run_holds_the_plain_loops_weights(stops, tmp_path):
    """Through the loop, its seeds, saving and restoring; the toy draws from every stream."""
    case = Case("training", "here", {**TOY, "device": "cpu", "scheduler": "cosine"}, stops)
    config = parse(case.config)
    expected = train(make_ingredients(config, {}), config)
    saved = []
    for number, at in enumerate([*stops, None], start=1):
        supervisor = ScriptedSupervisor(at=at)
        attempt(case, tmp_path, supervisor, resume=saved[::-1], number=number)
        saved += supervisor.checkpoints
    last = saved[-1]
    state = CheckpointStore(tmp_path, identity={}).load(Candidate(last.path, last.digest))
    require_equal_tensors(state["model"], expected.steps[-1].weights, last.step)
    require_equal_tensors(state["best_model"], expected.best_weights, expected.best_epoch)
    assert (last.step, str(last.type)) == (len(expected.steps), "final")


def test_accumulated_batches_are_one_batch_but_for_rounding():
    """The mean over all examples, as one backward pass of plain PyTorch has it.

    Only the order of sums differs: in float64 no weight differs by more than rounding.
    """
    config = parse({**BASE, "epochs": 1, "batch_size": 5, "gradient_accumulation": 5,
                    "optimizer": "sgd", "momentum": 0.0})  # fmt: skip
    torch.set_default_dtype(torch.float64)
    try:
        job = make_job(config, {})
        model = drawn_model.Branches(0.0)
    finally:
        torch.set_default_dtype(torch.float32)
    model.load_state_dict(job.state_dict()["model"])
    job.advance()
    assert job.step == job.total_steps == 1
    examples = job.trainer.train
    order = permutation(config.seed, 0, 23)
    outputs = model(*(each[order] for each in examples.inputs))
    torch.nn.functional.cross_entropy(outputs, examples.targets[order]).backward()
    for name, weight in model.named_parameters():
        moved = weight if weight.grad is None else weight - config.learning_rate * weight.grad
        assert (job.state_dict()["model"][name] - moved).abs().max() < 1e-14, name
