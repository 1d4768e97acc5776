"""Random generators that a recipe keeps for itself: saved and put back, or refused by name."""

import importlib
import random
import sys
from collections import namedtuple
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from tests.engines import test_selfcheck, toy_model
from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from tests.engines.mutation import load
from tests.thinning import quick_some
from trainops.kind import KINDS
from trainops.kinds.federated.recipes import digits_model
from trainops.runtime import generators, reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Failed

TOY = Case("training", "here", {"recipe": "toy", "batch_size": 8, "epochs": 4}, stops=(1, 6, 13))
OF_THE_MODULE = np.random.default_rng(5)


class Noise(nn.Module):
    """Multiplies by what it draws while training."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, values):
        return values * (1 + 0.1 * self.draw()) if self.training else values


class Drawing:
    """Keeps its generator in a slot."""

    __slots__ = ("source",)

    def __init__(self, source):
        self.source = source

    def __call__(self):
        return self.source.random()


def from_the_module():
    return OF_THE_MODULE.random()


def torch_draw(generator):
    return torch.rand((), generator=generator)


def in_a_list(kept):
    return kept["a"][0].random()


def closure(source):
    def draw():
        return [source.random() for _ in range(2)][1]

    return draw


DRAWS = {
    "default_rng": lambda: Drawing(np.random.default_rng(3)),
    "default_rng in a closure": lambda: closure(np.random.default_rng(3)),
    "Generator of MT19937": lambda: Drawing(np.random.Generator(np.random.MT19937(3))),
    "Generator of Philox": lambda: Drawing(np.random.Generator(np.random.Philox(3))),
    "Generator of SFC64": lambda: Drawing(np.random.Generator(np.random.SFC64(3))),
    "Generator of PCG64DXSM": lambda: Drawing(np.random.Generator(np.random.PCG64DXSM(3))),
    "RandomState": lambda: Drawing(np.random.RandomState(3)),
    "torch.Generator": lambda: partial(torch_draw, torch.Generator().manual_seed(3)),
    "random.Random": lambda: random.Random(3).random,  # noqa: S311
    "random.Random, bound": lambda: partial(random.Random(3).gauss, 0, 1),  # noqa: S311
    "in a list of a dict": lambda: partial(in_a_list, {"a": [random.Random(3)]}),  # noqa: S311
    "a global of a module": lambda: from_the_module,
}


@pytest.fixture
def drawing(monkeypatch):
    """Return what has the toy recipe draw like this in its model."""
    original = toy_model.build

    def use(make):
        def build(parameters, context):
            OF_THE_MODULE.bit_generator.state = np.random.default_rng(5).bit_generator.state
            made = original(parameters, context)
            return replace(made, model=nn.Sequential(made.model, Noise(make())))

        monkeypatch.setattr(toy_model, "build", build)

    return use


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_some(DRAWS, every=6))
def test_a_generator_of_the_recipes_own_is_resumed_bit_for_bit(name, drawing, tmp_path):
    drawing(DRAWS[name])
    expected = undisturbed(TOY, tmp_path)
    require_stop_changes_nothing(TOY, tmp_path / "stopped", expected, TOY.stops)
    require_death_changes_nothing(TOY, tmp_path / "died", expected, at=12, every_steps=5)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_some(DRAWS, every=6))
def test_the_self_check_agrees(name, drawing, tmp_path):
    drawing(DRAWS[name])
    (finding,), _ = test_selfcheck.found(TOY, tmp_path)
    assert finding.verdict == "equal", finding


@pytest.mark.slow
def test_one_in_the_loss_is_found_too(monkeypatch, tmp_path):
    original = toy_model.build

    def build(parameters, context):
        made, source = original(parameters, context), random.Random(3)  # noqa: S311
        return replace(
            made, loss=lambda outputs, truth: made.loss(outputs, truth) * source.random()
        )

    monkeypatch.setattr(toy_model, "build", build)
    expected = undisturbed(TOY, tmp_path)
    require_stop_changes_nothing(TOY, tmp_path / "stopped", expected, TOY.stops)


def test_the_receipt_names_each(drawing, tmp_path):
    drawing(DRAWS["default_rng"])
    first, second = ScriptedSupervisor(at=3), ScriptedSupervisor()
    attempt(TOY, tmp_path, first)
    attempt(TOY, tmp_path, second, resume=first.checkpoints, number=2)
    items = {item.part: item for item in second.receipts[0].items}
    assert items["random: model.1.draw.source"].exact
    assert "random: own" not in items


def test_without_any_a_checkpoint_is_as_it_was(tmp_path):
    supervisor = ScriptedSupervisor(at=3)
    attempt(TOY, tmp_path, supervisor)
    checkpoint = supervisor.checkpoints[0]
    assert set(load(checkpoint)["random"]) == set(reproducibility.STREAMS)


def test_a_checkpoint_from_before_they_were_saved_is_not_exact(drawing, tmp_path):
    first, second = ScriptedSupervisor(at=3), ScriptedSupervisor()
    attempt(TOY, tmp_path / "before", first)
    drawing(lambda: Drawing(random.Random(3)))  # noqa: S311
    state = load(first.checkpoints[0])
    state["model"] = {f"0.{name}": each for name, each in state["model"].items()}
    saved = CheckpointStore(tmp_path / "after", identity={}).write(
        CheckpointType.PERIODIC, step=3, state=state
    )
    attempt(TOY, tmp_path / "after", second, resume=[saved], number=2)
    (receipt,) = second.receipts
    (item,) = [item for item in receipt.items if not item.exact]
    assert item.part == "random: model.1.draw.source"
    assert item.note == "the checkpoint does not have it"


class Foreign(random.Random):
    """Draws from somewhere that nobody can put back."""

    def getstate(self):
        raise NotImplementedError


@pytest.mark.parametrize("make", [random.SystemRandom, Foreign])
def test_one_that_cannot_be_saved_is_refused_by_name_before_the_first_step(make, drawing, tmp_path):
    drawing(lambda: Drawing(make()))
    supervisor = ScriptedSupervisor()
    outcome = attempt(TOY, tmp_path, supervisor)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError)
    assert "model.1.draw.source is a" in str(outcome.error) and not supervisor.progress


def test_a_run_leaves_no_generator_behind(drawing, tmp_path):
    drawing(DRAWS["default_rng"])
    attempt(TOY, tmp_path)
    assert set(reproducibility.state_dict()) == set(reproducibility.STREAMS)


@dataclass
class Kept:
    one: object
    other: object = None

    @property
    def shown(self):
        return OF_THE_MODULE

    @staticmethod
    def drawn():
        return OF_THE_MODULE.random()


Pair = namedtuple("Pair", "left right")


def test_each_is_found_once_by_its_shortest_name():
    source = np.random.default_rng(1)
    twice = {"a": Kept(Kept(source), source), "b": Pair(source.bit_generator, None)}
    found = generators.find(twice)
    assert [name for name in found if "OF_THE_MODULE" not in name] == ["a.other"]
    assert generators.find(twice).keys() == found.keys()


def test_those_of_a_class_are_found():
    assert list(generators.find({"x": Kept(1)}).values()) == [OF_THE_MODULE]


class Shadowed:
    rng = random.Random(1)  # noqa: S311

    def __init__(self):
        self.rng = random.Random(2)  # noqa: S311

    def __call__(self):
        return self.rng.random() + type(self).rng.random() / 2


def drawn(first, second=OF_THE_MODULE):
    return first.random() + second.random()


MODULE = "import random\nNAMES = random.Random()\n\ndef drawn():\n    return NAMES.random()\n"


@pytest.mark.parametrize("is_installed", [True, False])
def test_those_of_a_library_are_not_looked_for_but_those_of_a_module_with_its_name_are(
    is_installed, monkeypatch, tmp_path
):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text(MODULE)
    if is_installed:
        (tmp_path / "datasets-1.dist-info").mkdir()
        (tmp_path / "datasets-1.dist-info" / "METADATA").write_text("Name: datasets\nVersion: 1\n")
    monkeypatch.setitem(sys.modules, "datasets", None)  # put back after the test
    del sys.modules["datasets"]
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("datasets")
    found = generators.find({"loop": module.drawn})
    assert list(found) == ([] if is_installed else ["loop.NAMES"])


def test_two_of_the_same_name_are_both_found_the_instances_first():
    data, source = Shadowed(), np.random.default_rng(1)
    found = generators.find({"data": data, "loss": partial(drawn, source)})
    assert found["data.rng"] is data.rng and found["data.rng#2"] is Shadowed.rng
    assert found["loss[0]"] is source and found["loss[0]#2"] is OF_THE_MODULE
    assert len(found) == 4


def test_names_that_look_numbered_stay_apart():
    one, other, third = (random.Random(n) for n in range(3))  # noqa: S311
    found = generators.find({"x": {"a#2": one, "a": other, "[0]": third}, "x.a": Kept(third)})
    assert {id(one), id(other), id(third)} <= set(map(id, found.values()))


def shadowed():
    Shadowed.rng.seed(1)
    return Shadowed()


@pytest.mark.slow
@pytest.mark.parametrize("make", [shadowed, lambda: partial(drawn, np.random.default_rng(1))])
def test_two_of_the_same_name_are_resumed_bit_for_bit(make, drawing, tmp_path):
    drawing(make)
    expected = undisturbed(TOY, tmp_path)
    require_stop_changes_nothing(TOY, tmp_path / "stopped", expected, TOY.stops)


@pytest.mark.parametrize("kind", [set, frozenset])
def test_one_in_a_set_of_several_is_refused_unless_it_is_elsewhere_too(kind):
    one, other = np.random.default_rng(1), np.random.default_rng(2)
    with pytest.raises(InputError, match=r"x\[[01]\] is a Generator of PCG64 in a set"):
        generators.find({"x": kind([one, other])})
    with pytest.raises(InputError, match=r"x\[[01]\]\.source is a Generator of PCG64 in a set"):
        generators.find({"x": kind([Drawing(one), Drawing(other)])})
    assert list(generators.find({"x": kind(["a", one, "b"])})) == ["x[0]"]
    elsewhere = {"x": kind([one, other]), "y": {"a": Kept([one, other])}}
    names = [name for name in generators.find(elsewhere) if "OF_THE_MODULE" not in name]
    assert [name for name in names if "drawn" not in name and "shown" not in name] == [
        "y.a.one[0]", "y.a.one[1]"
    ]  # fmt: skip


def test_the_global_streams_are_not_among_them():
    seen = {"python": random.gauss, "numpy": np.random.normal, "torch": torch.default_generator}
    assert generators.find(seen) == {}


def test_what_refers_to_itself_or_is_long_has_an_end():
    endless = []
    endless.append(endless)
    endless.append([object() for _ in range(200_000)])
    source = random.Random(1)  # noqa: S311
    assert generators.find({"a": endless, "b": {"c": source}}) == {"b.c": source}


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.Generator().manual_seed(2), lambda: random.Random(2),  # noqa: S311
        lambda: np.random.default_rng(2), lambda: np.random.RandomState(2),
        lambda: np.random.Philox(2), lambda: np.random.Generator(np.random.MT19937(2)),
    ],
)  # fmt: skip
def test_a_state_is_plain_and_goes_back(make, tmp_path):
    generator, other = make(), make()
    draw(generator)
    state = generators.state_of(generator)
    frozen = freeze({"own": {"x": state}})["own"]["x"]
    expected = draw(generator)
    assert draw(other) != expected
    assert generators.put_back(other, frozen) and draw(other) == expected
    assert not generators.put_back(random.Random(1), {"kind": "other", "state": 0})  # noqa: S311


def draw(generator):
    match generator:
        case torch.Generator():
            return torch.rand(3, generator=generator).tolist()
        case np.random.Philox():
            return generator.random_raw(3).tolist()
        case _:
            return [generator.random() for _ in range(3)]


PRIVATE = {"privacy": {"mode": "sample", "noise_multiplier": 1.0}, "optimizer": "sgd"}


@pytest.mark.parametrize(
    ("config", "why"),
    [(PRIVATE, "number of examples"), ({"placement": "distributed"}, "restart it"), ({}, "")],
)
def test_federated_runs_refuse_them_where_their_place_would_tell(config, why, monkeypatch):
    original = digits_model.build

    def build(parameters, context):
        made, source = original(parameters, context), random.Random(3)  # noqa: S311
        loss = made.ingredients.loss
        noisy = replace(made.ingredients, loss=lambda *given: loss(*given) * source.random())
        return replace(made, ingredients=noisy)

    monkeypatch.setattr(digits_model, "build", build)
    engine = KINDS["federated"]
    parsed = engine.parse_config({"recipe": "federated_digits", **config})
    if not why:
        assert list(engine.make_job(parsed).objects()) and engine.make_job(parsed)
        return
    with pytest.raises(InputError, match=rf"loss.source is a random generator .* {why}"):
        engine.make_job(parsed)
