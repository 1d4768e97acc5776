"""The training format: what may vary, and how each field is refused."""

import logging

import numpy as np
import pytest
import torch

from tests.formats.originals import save, tree
from trainops.files.checks import Severity
from trainops.files.errors import InvalidFields
from trainops.files.verify import verify
from trainops.kinds.training.files.exchange import read_training
from trainops.kinds.training.files.file import to_tree


@pytest.fixture
def content():
    return tree("training")


def read(content, tmp_path):
    return read_training(save(content, tmp_path / "file.ckpt"))


def refused(content, tmp_path):
    with pytest.raises(InvalidFields) as caught:
        read(content, tmp_path)
    return caught.value.errors


def test_everything_in_it_is_there(content, tmp_path):
    file = read(content, tmp_path)
    assert (file.epoch, file.global_step, file.experiment_name) == (0, 25, "multi")
    assert file.name == "epoch_000_step_000025.ckpt"
    assert list(file.model)[:2] == ["fc1.weight", "fc1.bias"]
    assert [each["param_groups"][0]["lr"] for each in file.optimizers] == [0.0001, 0.01]
    assert [each["last_epoch"] for each in file.schedulers] == [25, 0]
    assert file.rng_states.numpy[0] == "MT19937" and len(file.rng_states.python[1]) == 625
    loaders = file.resume_state.loaders
    assert (loaders.seed, loaders.train.total_batches, loaders.validation) == (12345, 25, None)
    assert [each.name for each in loaders.train.loaders] == ["sampler", "iterable", "plain"]
    assert [each.batch_idx for each in loaders.train.loaders] == [1, 7, 5]
    assert loaders.train.cycles == (1, 0, 0)
    assert loaders.train.loaders[1].dataset_state == {"position": 56}


@pytest.mark.parametrize("empty", ["absent", "none"])
def test_an_older_file_with_one_optimizer_is_migrated_with_a_recommendation(
    content, tmp_path, caplog, empty
):
    content["optimizer_state_dict"] = content["optimizer_state_dicts"][0]
    content["scheduler_state_dict"] = content["scheduler_state_dicts"][0]
    for name in ("optimizer_state_dicts", "scheduler_state_dicts"):
        content[name] = None
        if empty == "absent":
            del content[name]
    with caplog.at_level(logging.WARNING, "trainops.files"):
        file = read(content, tmp_path)
    assert len(file.optimizers) == len(file.schedulers) == 1
    assert file.was_legacy == ("optimizer_state_dict", "scheduler_state_dict")
    assert "Save it again in today's layout" in caplog.text
    details = [check.detail for check in verify(tmp_path / "file.ckpt").checks]
    assert "older layout with optimizer_state_dict, scheduler_state_dict" in details[3]


def test_lists_win_over_what_an_older_tool_left_beside_them(content, tmp_path):
    content["optimizer_state_dict"] = {"state": {}, "param_groups": []}
    file = read(content, tmp_path)
    assert len(file.optimizers) == 2 and not file.was_legacy


@pytest.mark.parametrize(
    "name",
    [
        "format_version", "save_timestamp", "optimizer_state_dicts", "scheduler_state_dicts",
        "amp_scaler_state", "rng_states", "dataloader_manager_state", "choice_rng_state",
        "resume_state", "metrics", "metrics_history", "config_snapshot", "experiment_name",
        "config",
    ],
)  # fmt: skip
def test_what_real_files_may_lack_is_not_required(content, tmp_path, name):
    del content[name]
    assert read(content, tmp_path).global_step == 25


@pytest.mark.parametrize("name", ["epoch", "global_step"])
def test_what_a_position_needs_is(content, tmp_path, name):
    del content[name]
    assert refused(content, tmp_path) == {name: "is missing; must be an integer of at least 0"}


def test_cycles_are_counted_in_a_dict_by_the_formats_description(content, tmp_path):
    iterator = content["resume_state"]["dataloader_manager_state"]["train_iterator_state"]
    iterator["loader_cycles"] = {0: 1, 2: 3}
    assert read(content, tmp_path).resume_state.loaders.train.cycles == (1, 0, 3)


def test_loaders_states_without_ids_and_names(content, tmp_path):
    iterator = content["resume_state"]["dataloader_manager_state"]["train_iterator_state"]
    for state in iterator["loader_states"]:
        del state["id"], state["name"]
    loaders = read(content, tmp_path).resume_state.loaders.train.loaders
    assert [(each.number, each.name) for each in loaders][2] == (2, "loader_2")


def at_the_top(content, batches=30, **changes):
    """Return the content with a state of the loaders at the top level, as it is described."""
    return content | {
        "dataloader_manager_state": {
            "choice_rng_state": {"seed": 5, "state": None},
            "choice_rng": np.random.RandomState(5).get_state(),
            "train_iterator_state": {
                "schedule_position": batches,
                "loader_states": [
                    {
                        "batch_idx": batches,
                        "exhausted": False,
                        "sampler_state": None,
                        "dataset_state": None,
                    }
                ],
                "total_batches": batches,
                "loader_cycles": {0: 0},
                "prefetched_batches": batches,
            },
            "val_iterator_state": None,
        }
        | changes,
        "choice_rng_state": np.random.RandomState(5).get_state(),
    }


@pytest.mark.parametrize("resume_state", ["too", "none", "without loaders"])
def test_loaders_states_at_the_top_level_come_first(content, tmp_path, resume_state):
    """That is where their description has them, and their reader looks there first."""
    if resume_state == "none":
        content["resume_state"] = None
    elif resume_state == "without loaders":
        content["resume_state"]["dataloader_manager_state"] = None
    file = read(at_the_top(content), tmp_path)
    assert file.loaders.train.total_batches == 30
    assert file.loaders.seed == 5 and file.loaders.choice_rng[0] == "MT19937"
    assert verify(tmp_path / "file.ckpt").passed
    written = to_tree(file)
    assert written["dataloader_manager_state"]["train_iterator_state"]["total_batches"] == 30
    assert written["choice_rng_state"][0] == "MT19937"


@pytest.mark.parametrize("empty", [None, {}])
def test_an_empty_state_of_the_loaders_at_the_top_level_says_nothing(content, tmp_path, empty):
    file = read(content | {"dataloader_manager_state": empty}, tmp_path)
    assert file.loaders.train.total_batches == 25


def test_the_schedules_stream_may_be_a_tuple(content, tmp_path):
    state = np.random.RandomState(5).get_state()
    loaders = read(at_the_top(content, choice_rng=None, choice_rng_state=state), tmp_path).loaders
    assert loaders.choice_rng[0] == "MT19937" and loaders.seed is None


def test_wrong_fields_of_loaders_at_the_top_level_are_named(content, tmp_path):
    content = at_the_top(content, train_iterator_state={"loader_states": []})
    place = "dataloader_manager_state.train_iterator_state"
    assert refused(content, tmp_path).keys() == {
        f"{place}.schedule_position",
        f"{place}.total_batches",
    }
    del content["dataloader_manager_state"]["train_iterator_state"]
    content["dataloader_manager_state"] = [1]
    assert "must be a dict" in refused(content, tmp_path)["dataloader_manager_state"]


def set_at(content, place, value):
    *way, last = place
    for key in way:
        content = content[key]
    content[last] = value


RESUME = ("resume_state", "dataloader_manager_state", "train_iterator_state")
GROUP = ("optimizer_state_dicts", 0, "param_groups", 0)


@pytest.mark.parametrize(
    ("place", "value", "where", "words"),
    [
        (("epoch",), -1, "epoch", "is -1; must be an integer of at least 0"),
        (("epoch",), True, "epoch", "is True; must be an integer"),
        (("epoch",), 1.0, "epoch", "is 1.0; must be an integer"),
        (("global_step",), "25", "global_step", "is '25'; must be an integer"),
        (("save_timestamp",), float("nan"), "save_timestamp", "is nan; must be a finite number"),
        (("model_state_dict",), {}, "model_state_dict", "has no tensors"),
        (("model_state_dict",), [], "model_state_dict", "is []; must be a dict of tensors"),
        (("model_state_dict", "x"), 3, "model_state_dict.x", "is 3; model_state_dict must be"),
        (("optimizer_state_dicts",), {}, "optimizer_state_dicts", "must be a list of dicts"),
        (("optimizer_state_dicts", 1), 5, "optimizer_state_dicts[1]", "is 5; must be a dict"),
        ((*GROUP, "lr"), -0.1, "optimizer_state_dicts[0].param_groups[0].lr", "at least 0"),
        ((*GROUP, "lr"), float("inf"), "optimizer_state_dicts[0].param_groups[0].lr", "finite"),
        ((*GROUP, "params"), [0, "1"], "optimizer_state_dicts[0].param_groups[0].params[1]", "'1'"),
        (
            ("optimizer_state_dicts", 0, "state", 77),
            {"step": torch.tensor(1.0)},
            "optimizer_state_dicts[0].state[77]",
            "is of a parameter that no group has",
        ),
        (
            ("optimizer_state_dicts", 0, "state", 0, "step"),
            torch.zeros(2),
            "optimizer_state_dicts[0].state[0].step",
            "is a tensor float32 (2,); must be one number",
        ),
        (
            ("optimizer_state_dicts", 0, "state", 0, "exp_avg"),
            "x",
            "optimizer_state_dicts[0].state[0].exp_avg",
            "is 'x'; must be a tensor",
        ),
        (("rng_states", "python_random"), (3, (1, 2), None), "rng_states.python_random", "state"),
        (("rng_states", "torch_cpu"), torch.zeros(4), "rng_states.torch_cpu", "a tensor uint8"),
        (("rng_states", "torch_cuda"), [1], "rng_states.torch_cuda", "must be a list of tensors"),
        (
            ("rng_states", "numpy_random"),
            ("PCG64", np.zeros(624, np.uint32), 1, 0, 0.0),
            "rng_states.numpy_random",
            "must be a state of MT19937",
        ),
        (
            ("rng_states", "numpy_random"),
            ("MT19937", np.zeros(10, np.uint32), 1, 0, 0.0),
            "rng_states.numpy_random",
            "an array uint32 (10,)",
        ),
        (("resume_state", "phase"), 3, "resume_state.phase", "is 3; must be a string"),
        ((*RESUME, "total_batches"), 3, ".".join((*RESUME, "total_batches")), "loaders gave 13"),
        ((*RESUME, "loader_cycles"), [1], ".".join((*RESUME, "loader_cycles")), "for each of 3"),
        (
            (*RESUME, "loader_states", 1, "exhausted"),
            0,
            ".".join((*RESUME, "loader_states[1]", "exhausted")),
            "is 0; must be true or false",
        ),
        (("metrics",), {"loss": "low"}, "metrics.loss", "is 'low'; metrics must be"),
        (("experiment_name",), 7, "experiment_name", "is 7; must be a string"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_found_and_what_is_allowed(
    content, tmp_path, place, value, where, words
):
    set_at(content, place, value)
    if where == "resume_state.dataloader_manager_state.train_iterator_state.total_batches":
        set_at(content, (*RESUME, "prefetched_batches"), 0)
    errors = refused(content, tmp_path)
    assert next(iter(errors)) == where
    assert words in errors[where]


def test_all_that_is_wrong_is_reported_at_once(content, tmp_path):
    content["epoch"], content["global_step"], content["config"] = -1, "x", 3
    assert set(refused(content, tmp_path)) == {"epoch", "global_step", "config"}


@pytest.mark.parametrize(
    ("place", "value", "where", "words"),
    [
        (("global_step",), 10, "optimizer_state_dicts[0].state", "moved 25 times in 10 steps"),
        (
            ("optimizer_state_dicts", 0, "state", 2, "step"),
            torch.tensor(24.0),
            "optimizer_state_dicts[0].state",
            "parameters were moved 24 to 25 times",
        ),
        (
            ("scheduler_state_dicts", 1, "last_epoch"),
            27,
            "scheduler_state_dicts[1].last_epoch",
            "is 27 after 25 steps and 1 epochs",
        ),
        ((*GROUP, "lr"), 0.5, "optimizer_state_dicts[0].param_groups[0].lr", "more than 2 x"),
    ],
)
def test_positions_that_disagree_are_found(content, tmp_path, place, value, where, words):
    set_at(content, place, value)
    errors = refused(content, tmp_path)
    assert where in errors and words in errors[where]
    checks = verify(tmp_path / "file.ckpt").checks
    assert [check.name for check in checks if not check.passed] == ["agreement"]


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("optimizer_state_dicts", 0, "state"), {}, "[0].state is empty after 25 steps"),
        (
            ("optimizer_state_dicts", 0, "state", 0, "exp_avg"),
            torch.zeros(3, 2),
            "state[0].exp_avg is (3, 2): no tensor of the model has this shape",
        ),
        ((*GROUP, "lr"), 1e-7, "has the rates [1e-07], its schedule set [0.0001]"),
    ],
)
def test_odd_values_are_warnings(content, tmp_path, place, value, words):
    path = save(content, tmp_path / "before.ckpt")
    known = {each.detail for each in verify(path).checks if each.level is Severity.WARNING}
    set_at(content, place, value)
    report = verify(save(content, tmp_path / "file.ckpt"))
    assert report.level is Severity.WARNING
    (found,) = (each.detail for each in report.checks if each.level is Severity.WARNING)
    assert words in found and words not in "".join(known)
    assert "not compared: the shapes of a model" in found


def test_another_format_is_not_taken_for_it(tmp_path):
    with pytest.raises(Exception, match="a file of reinforcement learning, not of training"):
        read(tree("rl"), tmp_path)
