"""Which modules are in training mode: as their recipe leaves them, also after a resume."""

import copy
from contextlib import closing

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from trainops.kind import KINDS
from trainops.kinds.loop.ingredients import ingredients_loop
from trainops.kinds.loop.module import TrainingModule, module_loop, training
from trainops.kinds.loop.settings import IngredientsParameters, ModuleParameters
from trainops.learning.ingredients import DatasetIngredients
from trainops.learning.modes import start_modes
from trainops.runtime.errors import IncompatibleState, InputError

INPUTS = torch.linspace(-1, 1, 24).reshape(12, 2)
SETTINGS = {"epochs": 3}
SCRIPTING = "ignore:.*torch.jit.*deprecated:DeprecationWarning"


def encoder():
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))


class Tuned(TrainingModule):
    """A head on an encoder that stays in eval mode."""

    def __init__(self, run, parameters):
        super().__init__()
        self.encoder, self.head = encoder(), nn.Linear(4, 1)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.encoder.eval()

    def loaders(self, run):
        return {
            "train": run.loader("train", TensorDataset(INPUTS), batch_size=4),
            "validation": run.loader("validation", TensorDataset(INPUTS[:6]), batch_size=4),
        }

    def optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def training_step(self, batch):
        self.seen += 1
        return self.validation_step(batch)

    def validation_step(self, batch):
        return self.head(self.encoder(batch[0])).square().mean()


class Trained(Tuned):
    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.encoder.train()


class Overriding(Tuned):
    """Keeps its batch normalisation in eval mode by a `train` of its own."""

    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        for each in self.modules():
            each.training = True  # as a new module

    def train(self, mode=True):
        super().train(mode)
        self.encoder[1].eval()
        return self


class Scripted(Tuned):
    """Has a frozen TorchScript encoder, which has no mode, and one with a mode."""

    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        scripted = torch.jit.script(nn.Sequential(encoder(), nn.Dropout(0.1)).eval())
        self.encoder = nn.ModuleList([torch.jit.freeze(scripted), torch.jit.script(encoder())])
        self.encoder[1].eval()

    def validation_step(self, batch):
        hidden = [each(batch[0]) for each in self.encoder]
        return self.head(hidden[0] + hidden[1]).square().mean()


class Still(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(False)


class WithStill(Overriding):
    """The same by a part of it."""

    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.encoder[1] = Still(4)

    train = TrainingModule.train


class AroundEval(TrainingModule):
    """A part that overrides `train`, as models of Hugging Face do, around one in eval mode."""

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = encoder().eval(), nn.Linear(4, 1)

        def train(self, mode=True):
            return super().train(mode)

        def forward(self, inputs):
            return self.head(self.encoder(inputs))

    def __init__(self, run, parameters):
        super().__init__()
        self.body = self.Body()

    loaders, optimizers = Tuned.loaders, Tuned.optimizers

    def validation_step(self, batch):
        return self.body(batch[0]).square().mean()

    training_step = validation_step


class Nested(AroundEval):
    """Overrides `train` for a part of a part that overrides it, too."""

    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        for each in self.modules():
            each.training = True  # as a new module

    def train(self, mode=True):
        super().train(mode)
        self.body.encoder[1].eval()
        return self


def of_module(made):
    def train(run, _):
        yield from module_loop(made)(run, ModuleParameters.parse(SETTINGS))

    return train


def ingredients(parameters, context):
    model = nn.Sequential(encoder().eval(), nn.Linear(4, 1))
    data = TensorDataset(INPUTS, INPUTS[:, :1])
    loss = nn.functional.mse_loss
    return DatasetIngredients(model=model, loss=loss, train=data, validation=data)


def of_ingredients(run, _):
    given = IngredientsParameters.parse(SETTINGS | {"batch_size": 4})
    yield from ingredients_loop(ingredients)(run, given)


def buffers(done):
    path = done.checkpoints[-1].path / "model.pt"
    saved = torch.load(path, weights_only=True)  # noqa: TID251
    return {name.rpartition(".")[2]: each for name, each in saved.items() if "num_" in name}


STAYING = {
    "eval": of_module(Tuned),
    "own-train": of_module(Overriding),
    "own-train-of-a-part": of_module(WithStill),
    "own-train-around-eval": of_module(AroundEval),
    "TorchScript": of_module(Scripted),
    "own-train-of-nested-parts": of_module(Nested),
    "ingredients": of_ingredients,
}


def test_a_part_whose_train_method_takes_no_mode_is_refused_by_name(follow):
    class Own(nn.Linear):
        def train(self, loader):
            for _ in loader:
                pass

    class Around(Overriding):
        def __init__(self, run, parameters):
            super().__init__(run, parameters)
            self.head = Own(4, 1)

    with pytest.raises(InputError, match=r"recipe: Own\.train was called with a mode"):
        follow(of_module(Around))


def test_the_log_names_at_most_20_parts_in_eval_mode(caplog):
    model = nn.Sequential(*(nn.Linear(1, 1).eval() for _ in range(23)))
    start_modes(model)
    assert caplog.messages[-1].endswith("17, 18, 19 and 3 more")


def test_train_methods_are_called_before_a_module_is_divided(follow, monkeypatch):
    class Freezing(Tuned):
        def train(self, mode=True):
            self.encoder.requires_grad_(False)
            return super().train(mode)

    frozen = []

    def placed(run, module):
        frozen.extend(n for n, each in module.named_parameters() if not each.requires_grad)
        return original(run, module)

    original = training.placed
    monkeypatch.setattr(training, "placed", placed)
    follow(of_module(Freezing))
    assert frozen == ["encoder.0.weight", "encoder.0.bias", "encoder.1.weight", "encoder.1.bias"]


@pytest.mark.filterwarnings(SCRIPTING)
@pytest.mark.parametrize("name", STAYING)
def test_parts_in_eval_mode_stay_so_after_validations_and_resumes(require_exact, name):
    done = require_exact(STAYING[name], stops=[2, 6, 8])
    assert buffers(done) == {"num_batches_tracked": 0}


@pytest.mark.filterwarnings(SCRIPTING)
def test_modes_of_models_with_frozen_scripted_parts_are_resumed(require_exact):
    class Switching(Scripted):
        def training_step(self, batch):
            self.encoder[1].train(bool(self.seen >= 4))
            return super().training_step(batch)

    done = require_exact(of_module(Switching), stops=[2, 5, 7, 8, 9])
    assert buffers(done) == {"num_batches_tracked": 9 - 4}


def test_modules_that_change_their_modes_while_training_are_resumed_in_them(require_exact):
    class Switching(Tuned):
        def __init__(self, run, parameters):
            super().__init__(run, parameters)
            self.encoder.train()

        def training_step(self, batch):
            if self.seen == 4:
                self.encoder[1].eval()
            return super().training_step(batch)

    done = require_exact(of_module(Switching), stops=[2, 7, 8, 9])
    assert buffers(done) == {"num_batches_tracked": 4}


def looped(run, _):
    """Freeze statistics from the second epoch on, and validate without dropout."""
    net = run.keep("model", encoder())
    optimizer = run.keep("optimizer", torch.optim.SGD(net.parameters(), 0.1))
    batches, halves = run.loader("train", TensorDataset(INPUTS), batch_size=4), run.steps("half", 2)
    for epoch in run.epochs(3):
        if epoch == 1:
            net[1].eval()
        for (inputs,) in batches:
            optimizer.zero_grad()
            net(inputs).square().mean().backward()
            optimizer.step()
            yield {}
        for half in halves:
            if half == 0:
                net[2].eval()
            yield {"val_loss": net(INPUTS[half::2]).square().mean().detach()}
        net[2].train()


def test_modes_of_models_of_an_own_loop_are_resumed(require_exact):
    done = require_exact(looped, stops=[3, 4, 7, 9])
    assert buffers(done) == {"num_batches_tracked": 3 + 2}  # of the first epoch


def test_a_state_of_an_earlier_version_changes_no_modes():
    kind = KINDS["loop"]
    config = kind.parse_config({"recipe": "digits_loop", "parameters": {"width": 4}, "threads": 1})
    job, other = (kind.make_job(config, {}, None) for _ in range(2))
    with closing(job), closing(other):
        job.advance()
        state = copy.deepcopy(job.state_dict())
        assert not state["state"].keys() & {"modes", "trained"}  # nothing has changed so far
        other.load_state_dict(state)
        assert other.state_dict()["state"] == job.state_dict()["state"]


MALFORMED = (None, [], {"model": True}, {"model": {"0": 1}}, {"model": {0: True}})


@pytest.mark.parametrize("given", MALFORMED)
@pytest.mark.parametrize("part", ["modes", "trained"])
def test_modes_that_cannot_be_read_are_refused(part, given):
    kind = KINDS["loop"]
    config = kind.parse_config({"recipe": "digits_loop", "parameters": {"width": 4}, "threads": 1})
    job, other = (kind.make_job(config, {}, None) for _ in range(2))
    with closing(job), closing(other):
        job.advance()
        state = copy.deepcopy(job.state_dict())
        state["state"][part] = given
        with pytest.raises(IncompatibleState, match=f"the {part} of the state cannot be read"):
            other.load_state_dict(state)


@pytest.mark.parametrize("made", [Tuned, AroundEval, Trained, "looped"])
def test_a_state_of_a_version_that_forgot_modes_is_not_called_exact(made, monkeypatch):
    kind = KINDS["loop"]
    train = looped if made == "looped" else of_module(made)
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: train)
    config = kind.parse_config({"recipe": "digits_loop", "threads": 1})
    job, other, newer = (kind.make_job(config, {}, None) for _ in range(3))
    with closing(job), closing(other), closing(newer):
        job.advance()
        state = copy.deepcopy(job.state_dict())
        newer.load_state_dict(copy.deepcopy(state))
        assert not newer.inexact
        del state["state"]["examples"]
        other.load_state_dict(state)
        assert list(other.inexact) == (["modes"] if made in (Tuned, AroundEval) else [])
