"""A training file becomes a checkpoint that our job continues from, and the other way round."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

from tests.engines.contract import ScriptedSupervisor
from tests.formats.conftest import Run, parse
from tests.formats.originals import key_tree, original, save, tree
from tests.thinning import quick_some
from trainops.files.verify import verify
from trainops.files.writing import write
from trainops.kind import KINDS
from trainops.kinds.training.files.exchange import read_training
from trainops.kinds.training.files.exporting import export_training
from trainops.kinds.training.files.file import to_tree
from trainops.kinds.training.files.importing import import_training
from trainops.runtime import lossless, reproducibility
from trainops.runtime.checkpoint.store import (
    Candidate,
    CheckpointPolicy,
    CheckpointStore,
    CheckpointType,
)
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.loop import Succeeded, run

pytestmark = pytest.mark.usefixtures("foreign")
SCHEDULERS = ["none", "cosine", "step", "onecycle", "warmup_cosine"]


@pytest.fixture
def file(tmp_path):
    return read_training(original("training", tmp_path))


def receipt(imported):
    return {item.part: item for item in imported.receipt.items}


def same(one, other):
    return lossless_form(one) == lossless_form(other)


def lossless_form(value):
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.numpy().tobytes())
    if isinstance(value, dict):
        return {name: lossless_form(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [lossless_form(each) for each in value]
    return repr(value)


def test_the_other_tools_file_continues_at_its_step(file):
    imported = import_training(file, parse())
    assert imported.step == 25
    cursor = imported.state["state"]["cursor"]
    assert cursor == {"epoch": 0, "next_batch": 25, "optimizer_steps": 25, "samples_seen": 200}
    assert same(imported.state["model"], dict(file.model))
    moments = imported.state["optimizer"][0]["state"]
    assert same(moments, dict(file.optimizers[0]["state"]))
    assert imported.state["optimizer"][0]["param_groups"][0]["lr"] == 0.0001
    assert imported.state["scheduler"][0]["last_epoch"] == 25
    assert imported.state["scheduler"][0]["step_size"] == 20
    assert same(imported.state["random"]["torch"], file.rng_states.torch_cpu)
    assert imported.state["random"]["python"] == file.rng_states.python
    found = receipt(imported)
    assert found["model"].exact and found["optimizer"].restored and found["scheduler"].restored
    assert found["random: numpy"].exact
    assert not found["data position"].exact and "3 loaders" in found["data position"].note
    assert not found["optimizer 1 of the file"].restored
    assert not found["scheduler 1 of the file"].restored
    assert not imported.receipt.exact


@pytest.mark.slow
def test_it_resumes_into_an_operation_and_trains_to_the_end(file, tmp_path):
    config = parse()
    imported = import_training(file, config)
    store = CheckpointStore(tmp_path / "op_1", identity={"operation_id": "op_1"})
    checkpoint = store.write(CheckpointType.PERIODIC, step=imported.step, state=imported.state)
    assert verify(checkpoint.path).passed
    supervisor = ScriptedSupervisor()
    outcome = run(
        KINDS["training"].job_factory(config),
        seed=config.seed,
        store=CheckpointStore(
            tmp_path / "op_1",
            identity={"operation_id": "op_1"},
            candidates=[Candidate(checkpoint.path, checkpoint.digest)],
        ),
        policy=CheckpointPolicy(every_steps=None, every_seconds=300),
        supervisor=supervisor,
    )
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.result["steps"] == 2 * 38


def test_importing_leaves_the_random_streams_of_the_process_alone(file):
    torch.manual_seed(11)
    before = lossless_form(reproducibility.state_dict())
    import_training(file, parse())
    assert lossless_form(reproducibility.state_dict()) == before


def test_what_was_imported_is_a_copy(file):
    imported = import_training(file, parse())
    before = lossless_form(imported.state)
    for weights in file.model.values():
        weights.zero_()
    assert lossless_form(imported.state) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "epochs"), quick_some([*product(SCHEDULERS, [1, 2])], every=3)
)
def test_what_we_exported_after_an_epoch_continues_exactly(tmp_path, scheduler, epochs):
    """The same steps as without the detour, bit for bit."""
    config = parse(scheduler=scheduler, epochs=3, optimizer="sgd")
    straight = Run(config).until(38 * epochs)
    file = export_training(straight.parts(), config, name="run", saved_at=5.0)
    write(file, tmp_path / "file.ckpt")
    straight.to_the_end()
    assert verify(tmp_path / "file.ckpt").passed
    imported = import_training(read_training(tmp_path / "file.ckpt"), config)
    assert imported.step == 38 * epochs
    detour = Run(config).load(imported.state)
    detour.to_the_end()
    assert same(detour.job.state_dict()["model"], straight.job.state_dict()["model"])
    assert same(detour.job.state_dict()["optimizer"], straight.job.state_dict()["optimizer"])
    expected = {step: metrics for step, metrics in straight.curve.items() if step > 38 * epochs}
    assert lossless.dumps(list(detour.curve.values())) == lossless.dumps(list(expected.values()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "accumulation"), quick_some([*product([5, 20, 45], [3, 1])], every=4)
)
def test_what_we_exported_within_an_epoch_has_the_same_weights_at_the_end(
    tmp_path, step, accumulation
):
    """Only the running means of that epoch are not in the file."""
    config = parse(gradient_accumulation=accumulation, epochs=4)
    straight = Run(config).until(step)
    file = export_training(straight.parts(), config, name="run", saved_at=5.0)
    assert file.global_step == (step // 13 * 38 + step % 13 * 3 if accumulation == 3 else step)
    write(file, tmp_path / "file.ckpt")
    straight.to_the_end()
    imported = import_training(read_training(tmp_path / "file.ckpt"), config)
    assert imported.step == step
    detour = Run(config).load(imported.state).to_the_end()
    assert same(detour.job.state_dict()["model"], straight.job.state_dict()["model"])


def test_the_best_model_goes_along_where_it_is_the_last(tmp_path):
    config = parse(monitor="train_loss", epochs=5)
    trained = Run(config).until(38 * 2)
    assert trained.job.progress.best.epochs == 2
    imported = import_training(
        export_training(trained.parts(), config, name="x", saved_at=0.0), config
    )
    assert same(imported.state["best_model"], imported.state["model"])
    assert imported.state["state"]["best_epoch"] == 2
    assert receipt(imported)["history"].exact


def test_where_an_earlier_model_was_the_best_the_metric_starts_anew():
    config = parse(monitor="train_loss", epochs=5)
    trained = Run(config).until(38 * 2 + 4)
    file = export_training(trained.parts(), config, name="x", saved_at=0.0)
    imported = import_training(file, config)
    assert "best_model" not in imported.state
    history = imported.state["state"]["training_history"]
    assert [math.isnan(line["train_loss"]) for line in history] == [True, True]
    assert all(math.isfinite(line["val_loss"]) for line in history)
    assert "the best model, of epoch 2, is not in the file" in receipt(imported)["history"].note


def test_early_stopping_does_not_count_epochs_whose_best_is_unknown():
    config = parse(monitor="train_loss", epochs=5, early_stopping_patience=2)
    trained = Run(config).until(38 * 2 + 4)
    file = export_training(trained.parts(), config, name="x", saved_at=0.0)
    imported = import_training(file, config)
    assert imported.step == 0
    assert "early stopping" in receipt(imported)["data position"].note


def warm(file, config):
    """Import, which must not go on; return the reason."""
    imported = import_training(file, config)
    assert imported.step == 0
    assert same(imported.state["model"], dict(file.model))
    assert imported.state["state"]["cursor"]["optimizer_steps"] == 0
    assert Run(config).load(imported.state).until(3).job.step == 3
    found = receipt(imported)
    assert found["model"].restored and not found["optimizer"].restored
    return found["optimizer"].note


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"optimizer": "sgd"},
            "is of another kind of optimizer: only one has betas, eps, momentum",
        ),
        ({"optimizer": "adam"}, "has decoupled_weight_decay True, this job's False"),
        ({"scheduler": "cosine"}, "scheduler_state_dicts[0] is of another kind"),
        ({"batch_size": 16}, "batch 25 of epoch 0 is none here: an epoch has 19"),
        ({"gradient_accumulation": 4}, "batch 25 lies within a step of 4 batches"),
        ({"gradient_accumulation": 5}, "stands at 25, after 5 steps and 0 epochs"),
        ({"parameters": {"optimizers": 2}}, "scheduler_state_dicts[1] is of another kind"),
    ],
)
def test_where_it_does_not_fit_only_the_weights_are_taken_and_the_reason_reported(
    file, config, reason
):
    assert reason in warm(file, parse(**config))


def test_a_position_beyond_the_configs_end_is_none(file):
    optimizer = {**file.optimizers[0], "state": {}}
    far = replace(file, epoch=5, global_step=5 * 38 + 25, optimizers=(optimizer,))
    assert "lies beyond the 76 of this config" in warm(far, parse(scheduler="none"))


def test_steps_that_fit_no_position_are_none(file):
    assert "is step 25 here, not 31" in warm(replace(file, global_step=31), parse())


def test_a_file_without_optimizers_is_a_warm_start(file):
    assert "has no optimizer" in warm(replace(file, optimizers=()), parse())


def test_moments_that_the_optimizer_would_not_have_kept_are_found_before_the_first_step(file):
    optimizer = dict(file.optimizers[0])
    optimizer["state"] = {0: {"step": torch.tensor(25.0)}}
    damaged = replace(file, optimizers=(optimizer,))
    assert "optimizer[0].0 lacks exp_avg" in warm(damaged, parse())


def test_weights_of_another_shape_are_refused_naming_the_place(file):
    with pytest.raises(IncompatibleState, match=r"model_state_dict.fc1.weight is .*\(20, 10\)"):
        import_training(file, parse(parameters={"width": 21}))
    model = dict(file.model)
    model["extra"] = model.pop("fc2.bias")
    with pytest.raises(IncompatibleState, match=r"model_state_dict has .*extra"):
        import_training(replace(file, model=model), parse())


def test_fewer_optimizers_than_here_are_tolerated_and_reported(file):
    fewer = replace(file, optimizers=file.optimizers[:1])
    imported = import_training(fewer, parse(parameters={"optimizers": 2}, scheduler="none"))
    assert imported.step == 25
    item = receipt(imported)["optimizer 1"]
    assert not item.restored and "starts anew" in item.note


def test_the_files_hyperparameters_hold_and_differences_are_reported(file):
    imported = import_training(file, parse(weight_decay=0.5))
    assert imported.state["optimizer"][0]["param_groups"][0]["weight_decay"] == 0.01
    assert "weight_decay 0.01 of the file instead of 0.5" in receipt(imported)["optimizer"].note


def test_the_end_of_an_epoch_under_its_old_name_is_the_beginning_of_the_next(file):
    """So no schedule steps twice and no epoch is trained again."""
    iterator = replace(file.resume_state.loaders.train, total_batches=38, prefetched_batches=38)
    loaders = replace(file.resume_state.loaders, train=iterator)
    ended = replace(file, global_step=38, resume_state=replace(file.resume_state, loaders=loaders))
    imported = import_training(ended, parse(scheduler="none"))
    cursor = imported.state["state"]["cursor"]
    assert cursor == {"epoch": 1, "next_batch": 0, "optimizer_steps": 38, "samples_seen": 304}
    history = imported.state["state"]["training_history"]
    assert len(history) == 1 and math.isnan(history[0]["val_loss"])


@pytest.mark.parametrize("resume_state", ["without", "without loaders"])
def test_without_loaders_states_the_steps_are_the_position(file, resume_state):
    state = None if resume_state == "without" else replace(file.resume_state, loaders=None)
    imported = import_training(replace(file, resume_state=state), parse())
    assert imported.state["state"]["cursor"]["next_batch"] == 25


def test_loaders_states_at_the_top_level_are_the_position(file):
    train = replace(file.resume_state.loaders.train, total_batches=30, prefetched_batches=30)
    top = replace(file.resume_state.loaders, train=train)
    optimizer = {**file.optimizers[0], "state": {}}
    moved = replace(file, global_step=30, top_loaders=top, optimizers=(optimizer,))
    imported = import_training(moved, parse(scheduler="none"))
    assert imported.state["state"]["cursor"]["next_batch"] == 30


def test_streams_that_the_file_lacks_are_seeded_anew_and_reported(file):
    states = replace(file.rng_states, numpy=None, torch_cpu=torch.zeros(5056, dtype=torch.uint8))
    imported = import_training(replace(file, rng_states=states), parse())
    found = receipt(imported)
    assert found["random: python"].restored
    assert not found["random: numpy"].restored and not found["random: torch cpu"].restored
    Run(parse()).load(imported.state).until(27)


def test_a_scaler_is_left_behind_and_reported(file):
    imported = import_training(replace(file, amp_scaler={"scale": 2.0}), parse())
    assert not receipt(imported)["amp scaler"].restored


def test_what_we_export_has_the_keys_of_the_original():
    """Down to where the data begin: names of weights, of metrics, of a config."""
    config = parse(epochs=3)
    trained = Run(config).until(50)
    file = export_training(trained.parts(), config, name="multi", saved_at=1.0)
    ours, theirs = to_tree(file), tree("training")
    assert next(iter(ours)) == "format_version" and ours.pop("is_multi_dataloader_only") is True
    assert list(ours) == list(theirs)
    for place in (
        ("rng_states",),
        ("resume_state",),
        ("resume_state", "dataloader_manager_state"),
        ("resume_state", "dataloader_manager_state", "choice_rng_state"),
        ("resume_state", "dataloader_manager_state", "train_iterator_state"),
        ("config",),
    ):
        mine, other = ours, theirs
        for key in place:
            mine, other = mine[key], other[key]
        assert list(mine) == list(other), place
    loaders = ours["resume_state"]["dataloader_manager_state"]["train_iterator_state"]
    original_loaders = theirs["resume_state"]["dataloader_manager_state"]["train_iterator_state"]
    assert list(loaders["loader_states"][0]) == list(original_loaders["loader_states"][0])
    assert ours["resume_state"]["rng"] is None and ours["rng_states"]["torch_cuda"] is None
    for name in ("python_random", "numpy_random", "torch_cpu"):
        mine, other = ours["rng_states"][name], theirs["rng_states"][name]
        assert key_tree(mine) == key_tree(other)
    assert (ours["epoch"], ours["global_step"]) == (1, 50)
    assert ours["metrics_history"].keys() == {"train_loss", "val_loss", "learning_rate"}
    assert ours["config"]["monitor_metric"] == "val_loss"


@pytest.mark.parametrize("name", ["capturable", "fused", "foreach", "differentiable"])
def test_the_machine_that_continues_decides_how_a_step_is_computed(tmp_path, name):
    """A file of a GPU may say that its step can be captured there; here that fails."""
    content = tree("training")
    for optimizer in content["optimizer_state_dicts"]:
        for group in optimizer["param_groups"]:
            group[name] = True
    imported = import_training(read_training(save(content, tmp_path / "file.ckpt")), parse())
    assert imported.step == 25
    Run(parse()).load(imported.state).until(26)


def test_each_best_model_goes_along_by_whose_metric_the_last_epoch_is_the_best():
    config = parse(monitor="val_loss", mode="max", monitors={"train_loss": "min"}, epochs=5)
    trained = Run(config).until(38 * 2)
    assert trained.job.progress.further["train_loss"].epochs == 2
    assert trained.job.progress.best.epochs == 1
    file = export_training(trained.parts(), config, name="x", saved_at=0.0)
    imported = import_training(file, config)
    assert same(imported.state["best_model_train_loss"], imported.state["model"])
    assert "best_model" not in imported.state
    item = receipt(imported)["history"]
    assert not item.exact and item.note.startswith("without val_loss: the best model, of epoch 1")
