"""Attributes of a LightningModule beyond plain values, of its parts, and objects with a state."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.engines.contract import Case, attempt, require_stop_changes_nothing, undisturbed
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Failed

pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
from lightning.pytorch import LightningModule

from trainops.kinds.loop.containers import decode_container, digest_of, encode_container
from trainops.kinds.loop.lightning import lightning_loop
from trainops.kinds.loop.lightning.attributes import Attributes

INPUTS = torch.linspace(-1, 1, 24).reshape(12, 2)


class Average:
    """An average of weights, as libraries have them: neither a module nor plain values."""

    def __init__(self, parameters):
        self.shadow = [each.detach().clone() for each in parameters]

    def update(self, parameters):
        for own, each in zip(self.shadow, parameters, strict=True):
            own.mul_(0.9).add_(each.detach(), alpha=0.1)

    def state_dict(self):
        return OrderedDict(shadow=self.shadow, rate=np.float64(0.9))

    def load_state_dict(self, state):
        self.shadow = state["shadow"]


class Part(nn.Module):
    """Has a plain attribute that changes, and others that do not."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.limit = nn.Linear(2, 1), 0, 3

    def forward(self, inputs):
        self.seen += 1
        return self.layer(inputs)


class Changing(LightningModule):
    """The weights depend on everything that `change` changes in `thing`."""

    def __init__(self, thing, change):
        super().__init__()
        self.part, self.change, self.unchanged = Part(), change, Counter(a=1)
        self.average = Average(self.part.parameters())
        self.thing = thing

    def training_step(self, batch):
        number = self.change(self.thing) + self.part.seen + float(self.average.shadow[0].sum())
        return self.part(batch[0]).square().mean() * (1 + 0.01 * number)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.average.update(self.part.parameters())

    def configure_optimizers(self):
        self.optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return self.optimizer

    def train_dataloader(self):
        return DataLoader(TensorDataset(INPUTS), batch_size=3, shuffle=True)


def count(thing):
    thing["n"] += 1
    return thing["n"]


def nest(thing):
    thing["n"].append({len(thing["n"])})
    return len(thing["n"])


def add(thing):
    thing.add(len(thing))
    return len(thing)


def append(thing):
    thing.append(len(thing) / 3)
    return sum(thing)


def raise_level(thing):
    thing.level += 1
    return thing.level


THINGS = {
    "Counter": (Counter, count),
    "defaultdict": (partial(defaultdict, int), count),
    "defaultdict of a function": (partial(defaultdict, lambda: 7), count),
    "nested": (partial(defaultdict, list), nest),
    "set": (set, add),
    "deque": (partial(deque, maxlen=3), append),
    "namespace": (partial(SimpleNamespace, level=0), raise_level),
}


class Phase(Enum):
    EARLY = 1
    LATE = 2


class Seen(NamedTuple):
    number: int
    loss: torch.Tensor


@dataclass
class Inner:
    values: list[float] = field(default_factory=list)


@dataclass
class State:
    """Fields that change, and a function, which does not."""

    level: int = 0
    phase: Phase = Phase.EARLY
    inner: Inner = field(default_factory=Inner)
    total: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    how: Callable[..., Any] = lambda each: each / 3

    def step(self):
        self.level += 1
        self.phase = Phase.LATE if self.level > 2 else self.phase
        self.inner.values.append(self.how(self.level))
        self.total += self.level
        return self.level + self.phase.value + sum(self.inner.values) + float(self.total)


@dataclass(frozen=True, slots=True)
class Fixed:
    level: int = 0


def step(thing):
    return thing.step()


def step_all(thing):
    thing["states"].append(Fixed(len(thing["states"])))
    return sum(each.level for each in thing["states"])


def replace_fixed(thing):
    thing.fixed = replace(thing.fixed, level=thing.fixed.level + 1)
    return thing.fixed.level


def keep_seen(thing):
    thing.append(Seen(len(thing), torch.tensor(len(thing) / 3)))
    return sum(each.number + each.loss.item() for each in thing)


@dataclass
class Outer:
    fixed: Fixed


THINGS |= {
    "dataclass": (State, step),
    "dataclasses in a list": (lambda: {"states": [], "of": Counter()}, step_all),
    "frozen dataclass": (lambda: Outer(Fixed()), replace_fixed),
    "named tuples": (partial(deque, maxlen=3), keep_seen),
}


def case_of(monkeypatch, make):
    monkeypatch.setattr(
        "trainops.recipes.Recipe.builder", lambda _: lightning_loop(lambda *_: make())
    )
    config = {"recipe": "lit", "parameters": {"max_epochs": 2}, "monitor": "train_loss"}
    return Case("loop", "changing", {**config, "threads": 1}, ())


@pytest.mark.parametrize("name", THINGS)
def test_further_attributes_that_change_are_saved(monkeypatch, tmp_path, name):
    make, change = THINGS[name]
    case = case_of(monkeypatch, lambda: Changing(make(), change))
    expected = undisturbed(case, tmp_path)
    require_stop_changes_nothing(case, tmp_path / "stops", expected, [3])


def test_what_has_not_changed_is_not_saved():
    """States of earlier versions and of this one are the same."""
    module = Changing(Counter(), count)
    attributes = Attributes(module)
    attributes.begin([module.average])
    assert attributes.state_dict() == {}
    count(module.thing)
    module.part.seen += 1
    assert attributes.state_dict().keys() == {".thing", "part.seen"}


class Replacing(Changing):
    """Another object takes the place of a dataclass that two attributes are at the beginning."""

    def __init__(self):
        super().__init__(State(), step)
        self.first = self.thing

    def on_train_batch_end(self, outputs, batch, batch_idx):
        super().on_train_batch_end(outputs, batch, batch_idx)
        if self.thing is self.first:
            self.thing = replace(self.first, inner=Inner(), total=torch.ones(()))

    def training_step(self, batch):
        return super().training_step(batch) + 0.1 * self.first.level


class Sharing(Changing):
    """Another object has the dataclass, too."""

    def __init__(self):
        super().__init__(State(), step)
        self.other = SimpleNamespace(thing=self.thing, of=object())

    def training_step(self, batch):
        return super().training_step(batch) * self.other.thing.level


@pytest.mark.parametrize("module", [Replacing, Sharing])
def test_dataclasses_are_restored_in_place_unless_they_were_replaced(monkeypatch, tmp_path, module):
    case = case_of(monkeypatch, module)
    expected = undisturbed(case, tmp_path)
    require_stop_changes_nothing(case, tmp_path / "stops", expected, [1, 3])


class PrivatePart(nn.Module):
    """A LSTM, whose class has attributes with an underscore itself, and one of this class."""

    def __init__(self):
        super().__init__()
        self.recurrent, self._seen = nn.LSTM(2, 1), 0

    def forward(self, inputs):
        self._seen += 1
        return self.recurrent(inputs)[0] * self._seen


class Private(LightningModule):
    """The weights depend on attributes whose names begin with an underscore."""

    def __init__(self):
        super().__init__()
        self.part, self._seen, self._state, self.__weight = PrivatePart(), 0, State(), 1.0
        self._average = Average(self.part.parameters())
        self._ema = {name: each.detach().clone() for name, each in self.named_parameters()}

    def training_step(self, batch):
        self._seen += 1
        self.__weight *= 0.9
        for name, each in self.named_parameters():
            self._ema[name].mul_(0.5).add_(each.detach(), alpha=0.5)
        number = sum(each.sum() for each in (*self._ema.values(), *self._average.shadow))
        number = self._seen + self._state.step() + self.__weight + number
        return self.part(batch[0]).square().mean() * number

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self._average.update(self.part.parameters())

    configure_optimizers, train_dataloader = (
        Changing.configure_optimizers,
        Changing.train_dataloader,
    )


def test_attributes_with_an_underscore_are_saved(monkeypatch, tmp_path):
    case = case_of(monkeypatch, Private)
    expected = undisturbed(case, tmp_path)
    require_stop_changes_nothing(case, tmp_path / "stops", expected, [1, 3])
    path = expected.checkpoints[-1].path / "attributes.pt"
    saved = torch.load(path, weights_only=True)  # noqa: TID251
    own = {"._seen", "._state", "._Private__weight", "._ema", "._average.state_dict()"}
    assert saved.keys() == own | {"part._seen"}


class Clipping(Changing):
    """Clips gradients by lists of its parameters, and a dataclass with one."""

    def __init__(self):
        super().__init__(Counter(), count)
        self.weights, self._biases = [self.part.layer.weight], {"b": self.part.layer.bias}
        self.inner = Inner([self.part.layer.weight])

    def on_before_optimizer_step(self, optimizer):
        for each in (self.weights, self._biases.values(), self.inner.values):
            nn.utils.clip_grad_norm_(each, 0.1)
        assert self.inner.values[0] is self.part.layer.weight


def test_lists_of_parameters_stay_those_of_the_module(monkeypatch, tmp_path):
    case = case_of(monkeypatch, Clipping)
    expected = undisturbed(case, tmp_path)
    require_stop_changes_nothing(case, tmp_path / "stops", expected, [3])


class NotPlain(Changing):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.thing.how = lambda each: each


def test_a_changed_field_that_cannot_be_saved_is_named(monkeypatch, tmp_path):
    outcome = attempt(case_of(monkeypatch, lambda: NotPlain(State(), step)), tmp_path)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError)
    said = "'thing.how' of the module has changed, and is a function, which cannot be saved"
    assert said in str(outcome.error)


class Late(Changing):
    """Creates an object with a state when the training has begun."""

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.late = Average(self.part.parameters())


def test_an_object_with_a_state_that_is_created_later_is_refused(monkeypatch, tmp_path):
    outcome = attempt(case_of(monkeypatch, lambda: Late(Counter(), count)), tmp_path)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError)
    assert "'late' of the module has a state, and was created within" in str(outcome.error)


@pytest.mark.parametrize(
    "value",
    [
        Counter(a=1), OrderedDict(b=[1, {2}]), defaultdict(list, a=[np.float32(1)]), {3, 1, 2},
        frozenset({"x"}), deque([1, 2], maxlen=2), deque([(1, {2: {3}})]), {"a": Counter(b=2)},
        Phase.LATE, Seen(1, 2), [Inner([1.0])], {"a": Fixed(3)}, Outer(Fixed(2)),
        SimpleNamespace(a=1, b=Counter()), [{1}, (deque(),)], {"a": 1}, (1, 2.0, "x", None),
    ],
)  # fmt: skip
def test_containers_come_back_with_their_types(value):
    encoded = encode_container(value)
    back = decode_container(encoded)
    assert (type(back), repr(back)) == (type(value), repr(value))
    assert digest_of(encode_container(back)) == digest_of(encoded)


@pytest.mark.parametrize(
    "value", [State(), object(), [object()], {"a": {object}}, defaultdict(int, a=len)]
)
def test_containers_of_other_objects_are_left_as_they_are(value):
    assert encode_container(value) is None


def test_values_that_differ_have_other_digests():
    values = [
        0, 0.0, -0.0, False, None, "0", [0], (0,), {0}, deque([0]), {0: 0}, Counter({0: 0}),
        torch.zeros(1), torch.zeros(1, 1), torch.zeros(1, dtype=torch.int32), torch.zeros(0),
        np.zeros(1), np.float32(0), [[0], 0], [0, [0]],
    ]  # fmt: skip
    assert len({digest_of(encode_container(each)) for each in values}) == len(values)
