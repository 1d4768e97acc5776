"""Types of values in kept objects: what is saved with its type, and what is refused by name."""

from collections import Counter, OrderedDict, UserDict, defaultdict

import numpy as np
import pytest
import torch

from tests.engines.contract import ScriptedSupervisor, attempt
from tests.loop.conftest import SCRIPT
from trainops.kinds.loop.kept_values import from_plain, to_plain
from trainops.process.reason_codes import reason_code
from trainops.runtime.checkpoint.manifest import CheckpointType
from trainops.runtime.errors import UnfreezableState
from trainops.runtime.loop import Failed


class OwnDict(dict):
    """A dict of a recipe's own."""


def with_scalars(run, parameters):
    best = run.keep("best", {"loss": 9.0, "history": [], "of": {}})
    for epoch in run.epochs(6):
        if epoch > 1:
            best["loss"] = np.mean([1.0 / (epoch + 1)])
            best["of"]["small"] = np.float32(best["loss"] / 3)
            best["history"] += [np.int64(epoch), np.bool_(epoch % 2), np.str_("x")]
        third = np.float32(best["of"].get("small", 1)) / 3  # of a float, it would have more bits
        yield {"val_loss": float(third), "num": len(best["history"])}


def test_numpy_scalars_in_a_kept_dict_are_saved(require_exact):
    require_exact(with_scalars, [3, 5])


class Wave:
    """An object with a state of a recipe's own."""

    def __init__(self):
        self.phase = np.float64(0.5)

    def state_dict(self):
        return {"phase": self.phase}

    def load_state_dict(self, state):
        self.phase = state["phase"]


def with_objects(run, parameters):
    wave = run.keep("wave", Wave())
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = run.keep("optimizer", torch.optim.SGD([weight], lr=np.float64(0.1)))
    for _ in run.steps("step", 4):
        assert type(wave.phase) is np.float64
        wave.phase = np.sin(wave.phase)
        yield {"val_loss": wave.phase, "lr": optimizer.param_groups[0]["lr"]}


def test_numpy_scalars_in_states_of_kept_objects_are_saved(require_exact):
    require_exact(with_objects, [2])


def with_dicts(run, parameters):
    kept = run.keep(
        "kept", {"seen": Counter(), "sums": defaultdict(float), "lists": defaultdict(list)}
    )
    layer = torch.nn.BatchNorm1d(2)
    for step in run.steps("step", 6):
        kept["seen"]["a"] += 1
        kept["sums"][f"step {step}"] += step / 3
        kept["lists"][step % 2].append(step)
        kept["best"] = layer.state_dict()
        layer.load_state_dict(kept["best"])
        yield {"val_loss": float(kept["seen"]["a"]), "sum": kept["sums"][f"step {step}"]}


def test_counters_and_defaultdicts_in_a_kept_dict_keep_their_types(require_exact):
    require_exact(with_dicts, [1, 4])


@pytest.mark.parametrize(
    "value",
    [
        np.float64(0.1), np.float32(0.1), np.float16(0.1), np.int64(-3), np.uint8(3),
        np.bool_(True), np.complex64(1j), Counter(a=1), defaultdict(list, a=[np.int32(1)]),
        defaultdict(None, a=1), (1, np.float64(2)), {"a": {"b": Counter()}}, [1, 2.0, "x"],
    ],
)  # fmt: skip
def test_values_come_back_with_their_types(value):
    back = from_plain({"x": to_plain({"x": value}, "state.kept", is_dict=True)["x"]})["x"]
    assert (type(back), repr(back)) == (type(value), repr(value))


@pytest.mark.parametrize(
    "state",
    [
        {"a": OrderedDict(x=torch.ones(1)), "b": [1, "x", None]},
        {"milestones": Counter({3: 1}), "of": defaultdict(list, x=[1])},  # MultiStepLR has one
    ],
)
def test_states_of_objects_are_saved_as_plain_dicts(state):
    """Their load_state_dict has always been given those."""
    saved = to_plain(state, "state.kept", is_dict=False)
    assert saved == state
    assert {type(each) for each in saved.values()} <= {dict, list}


class Statistics:
    """An object with dicts of their own types in its state."""

    def __init__(self):
        self.sums = defaultdict(lambda: 0.5)
        self.counts = {"of": [defaultdict(Counter)]}

    def state_dict(self):
        return {"sums": self.sums, "counts": self.counts}

    def load_state_dict(self, state):
        self.sums, self.counts = state["sums"], state["counts"]


def with_statistics(run, parameters):
    statistics = run.keep("statistics", Statistics())
    for step in run.steps("step", 6):
        statistics.sums[f"step {step}"] += step / 3
        (counts,) = statistics.counts["of"]
        counts[step % 2]["new" if step > 2 else "old"] += 1
        counts[f"step {step}"]["a"] += 1
        yield {"val_loss": sum(statistics.sums.values())}


def test_states_of_objects_come_back_with_the_types_that_a_new_object_has(require_exact):
    require_exact(with_statistics, [1, 4])


def keeps(value):
    def train(run, parameters):
        kept = run.keep("kept", {"good": 1})
        for step in run.steps("step", 500):
            if step > 2:
                kept["bad"] = {"of": value}
            yield {"val_loss": 1.0}

    return train


REFUSED = {
    "a dict of a recipe's own": (OwnDict(), r"state\.kept\.bad\.of is a .*OwnDict.*dict\(of\)"),
    "a factory": (defaultdict(lambda: 1), r"state\.kept\.bad\.of is a defaultdict of <function"),
    "a set": ({1}, r"state\.kept\.bad\.of is a builtins\.set"),
    "a type that torch lacks": (np.longdouble(1), r"state\.kept\.bad\.of is a numpy\.longdouble"),
    "a date": (np.datetime64("2026-01-01"), r"state\.kept\.bad\.of is a numpy\.datetime64"),
    "an array": (np.ones(1), r"state\.kept\.bad\.of is a numpy\.ndarray.*torch\.from_numpy"),
    "another container": (UserDict(), r"state\.kept\.bad\.of is a collections\.UserDict"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_that_cannot_be_saved_leaves_the_last_good_one(name, monkeypatch, tmp_path):
    value, says = REFUSED[name]
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: keeps(value))
    supervisor = ScriptedSupervisor()
    outcome = attempt(SCRIPT, tmp_path, supervisor)
    assert isinstance(outcome, Failed)
    with pytest.raises(UnfreezableState, match=says):
        raise outcome.error
    assert reason_code(outcome.error) == "INPUT_ERROR"
    (last,) = supervisor.checkpoints
    assert (last.type, last.step <= 3) == (CheckpointType.FAILURE, True)
