"""What `compile` compiles of a training module: its models, also those in lists and dicts."""

import logging

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from trainops.kinds.loop.module import TrainingModule, module_loop
from trainops.kinds.loop.settings import ModuleParameters
from trainops.runtime.errors import InputError

COMPILING = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of the compiler


class Layers(TrainingModule):
    def __init__(self, run, parameters):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(2, 2), nn.ModuleDict({"last": nn.Bilinear(2, 2, 1)})]
        )

    def loaders(self, run):
        return {"train": run.loader("train", TensorDataset(torch.ones(2, 2)), batch_size=2)}

    def optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def training_step(self, batch):
        hidden = self.layers[0](batch[0])
        return self.layers[1]["last"](hidden, hidden).square().mean()


class Weight(Layers):
    """Computes with a parameter of its own."""

    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.layers = None
        self.weight = nn.Parameter(torch.ones(2))

    def training_step(self, batch):
        return (batch[0] * self.weight).square().mean()


class Adding(nn.ModuleList):
    """A list of layers that is a model itself."""

    def forward(self, inputs):
        return sum(each(inputs) for each in self)


class Group(nn.Module):
    """Has no forward: its parts are models."""

    def __init__(self):
        super().__init__()
        self.first, self.adding = nn.Linear(2, 2), Adding([nn.Linear(2, 1), nn.Linear(2, 1)])


class Grouped(Layers):
    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.layers = Group()

    def training_step(self, batch):
        return self.layers.adding(self.layers.first(batch[0])).square().mean()


class Block(nn.Linear):
    def forward(self, inputs):
        return torch.relu(super().forward(inputs))


class Blocks(Layers):
    """More blocks of one class than torch compiles of one forward."""

    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.layers = nn.ModuleList([Block(2, 2) for _ in range(12)])

    def loaders(self, run):
        data = TensorDataset(torch.ones(3, 2))
        return {name: run.loader(name, data, batch_size=2) for name in ("train", "validation")}

    def training_step(self, batch):
        return self.validation_step(batch)

    def validation_step(self, batch):
        hidden = batch[0]
        for each in self.layers:
            hidden = each(hidden)
        return hidden.square().mean()


class OfManyShapes(Blocks):
    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.layers = self.layers[:1]

    def training_step(self, batch):
        shapes = [self.validation_step([torch.ones(n, 2)]) for n in range(2, 12)]
        return torch.stack(shapes).mean()


@pytest.fixture
def graphs():
    """Count what torch compiles, and compute it as it is."""

    def backend(graph, inputs):
        found.append(graph)
        return graph.forward

    found = []
    before = torch.compiler.get_default_backend()
    torch.compiler.reset()
    torch.compiler.set_default_backend(backend)
    yield found
    torch.compiler.set_default_backend(before)
    torch.compiler.reset()


@pytest.fixture
def compiled(follow, monkeypatch):
    """Return the types of the modules that are compiled."""

    def run(made):
        def train(run, _):
            given = ModuleParameters.parse({"epochs": 1, "compile": True})
            yield from module_loop(made)(run, given)

        found = []
        monkeypatch.setattr(nn.Module, "compile", lambda module, **_: found.append(type(module)))
        follow(train)
        return found

    return run


def test_models_in_lists_and_dicts_are_compiled(compiled):
    assert compiled(Layers) == [nn.Linear, nn.Bilinear]


def test_a_container_with_a_forward_is_compiled_as_a_whole_and_without_one_by_its_parts(compiled):
    assert compiled(Grouped) == [nn.Linear, Adding]


def loop_of(made):
    def train(run, _):
        yield from module_loop(made)(run, ModuleParameters.parse({"epochs": 1, "compile": True}))

    return train


@COMPILING
def test_each_block_of_a_list_is_compiled_for_each_shape_and_mode(follow, graphs):
    follow(loop_of(Blocks))
    assert len(graphs) == 12 * 2 * 2


@COMPILING
def test_more_shapes_than_torch_compiles_are_refused(follow, graphs):
    with pytest.raises(InputError) as refused:
        follow(loop_of(OfManyShapes))
    assert "compiles a model for at most 8 shapes and modes; allowed: false" in str(refused.value)
    assert not torch.compiler.config.fail_on_recompile_limit_hit


def test_a_module_without_models_is_named_in_the_log(compiled, caplog):
    with caplog.at_level(logging.WARNING):
        assert compiled(Weight) == []
    assert "compile: Weight has no model as an attribute, so nothing is compiled" in caplog.text
