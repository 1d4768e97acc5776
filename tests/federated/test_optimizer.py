"""Clients' optimizers beside torch's: the same moves, and the same memory in others' files."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW

from tests.federated.runs import make_job
from trainops.kinds.federated.fast.optimizer import ClientOptimizer
from trainops.kinds.federated.files.client_optimizer import from_torch, other_settings, to_torch
from trainops.kinds.federated.parameter_layout import ParameterLayout
from trainops.runtime.errors import IncompatibleState

WAYS = [
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "weight_decay": 0.1},
    {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1},
    {"optimizer": "adam"},
    {"optimizer": "adam", "weight_decay": 0.1},
    {"optimizer": "adamw", "weight_decay": 0.1},
]
every_way = pytest.mark.parametrize("way", WAYS, ids=str)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def config_of(way):
    return make_job(learning_rate=0.05, **way).config


def torchs(config, model):
    named = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        return SGD(model.parameters(), momentum=config.momentum, **named)
    return {"adam": Adam, "adamw": AdamW}[config.optimizer](model.parameters(), **named)


def side_by_side(config, steps):
    """Train a network with torch's optimizer and its copy with ours; return all four."""
    model = network()
    mine = copy.deepcopy(model)
    optimizer, layout = torchs(config, model), ParameterLayout(mine)
    ours = ClientOptimizer(config, layout.values[None])
    for _ in range(steps):
        inputs, targets = torch.randn(6, 4), torch.randint(0, 3, (6,))
        optimizer.zero_grad()
        for each in (model, mine):
            nn.functional.cross_entropy(each(inputs), targets).backward()
        optimizer.step()
        ours.move(layout.values[None], layout.take_gradients()[None])
    return model, optimizer, layout, ours


@every_way
def test_it_moves_as_torchs_does(way):
    model, _, layout, _ = side_by_side(config_of(way), steps=8)
    for mine, theirs in zip(layout.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)
    assert not torch.allclose(next(iter(model.parameters())), next(iter(network().parameters())))


@every_way
def test_in_a_file_it_is_torchs_and_back_it_is_the_same(way):
    config = config_of(way)
    model, optimizer, _, ours = side_by_side(config, steps=5)
    shapes, state = [each.shape for each in model.parameters()], ours.state_dict()
    converted = to_torch(state, config, shapes)
    optimizer.load_state_dict(converted)  # torch takes it
    theirs = side_by_side(config, steps=5)[1].state_dict()["state"]
    kept = {n: {k for k, v in each.items() if v is not None} for n, each in theirs.items()}
    assert {n: set(each) for n, each in converted["state"].items()} == {
        n: k for n, k in kept.items() if k
    }
    back = from_torch(converted, ours.state_dict(), config, shapes)
    assert back.get("steps") == state.get("steps")
    assert len(back["moments"]) == len(state["moments"])
    for one, other in zip(back["moments"], state["moments"], strict=True):
        assert torch.equal(one, other)


WRONG = [
    (lambda state: state["state"].pop(1), "has no exp_avg of parameter 1"),
    (lambda state: state["state"][2].pop("exp_avg_sq"), "2 lacks exp_avg_sq"),
    (lambda state: state["state"][0].update(step=torch.tensor(4.0)), r"took \[4, 5\] steps"),
    (
        lambda state: state["state"][0].update(exp_avg=torch.zeros(2)),
        r"is torch.float32 \(2,\), this job",
    ),
    (
        lambda state: state["state"][0].update(exp_avg=torch.tensor(2.0)),
        r"is torch.float32 \(\), this job",
    ),
    (lambda state: state["state"][0].update(max_exp_avg_sq=torch.zeros(5, 4)), r"keeps \['max_exp"),
    (lambda state: state["param_groups"][0].update(params=[1, 0, 2, 3]), r"\[\[1, 0, 2, 3\]\]"),
    (lambda state: state["param_groups"].append({"params": [4]}), r"\[0, 1, 2, 3\], \[4\]"),
]


@pytest.mark.parametrize(("damage", "problem"), WRONG, ids=[problem for _, problem in WRONG])
def test_a_files_optimizer_that_does_not_fit_is_refused(damage, problem):
    config = config_of({"optimizer": "adam"})
    model, _, _, ours = side_by_side(config, steps=5)
    shapes = [each.shape for each in model.parameters()]
    converted = to_torch(ours.state_dict(), config, shapes)
    damage(converted)
    with pytest.raises(IncompatibleState, match=problem):
        from_torch(converted, ours.state_dict(), config, shapes)


def test_moments_that_the_configs_optimizer_has_no_place_for_are_refused():
    config, plain = config_of({"optimizer": "adam"}), config_of({"optimizer": "sgd"})
    model, _, _, ours = side_by_side(config, steps=2)
    shapes = [each.shape for each in model.parameters()]
    converted = to_torch(ours.state_dict(), config, shapes)
    own = ClientOptimizer(plain, ours.moments[0]).state_dict()
    with pytest.raises(IncompatibleState, match=r"keeps \['exp_avg', 'exp_avg_sq'\]; sgd"):
        from_torch(converted, own, plain, shapes)


@pytest.mark.parametrize(
    ("way", "others"),
    [
        ({"optimizer": "sgd", "momentum": 0.9}, {"lr": 0.5, "momentum": 0.8, "nesterov": True}),
        ({"optimizer": "sgd"}, {"momentum": None, "maximize": True}),
        ({"optimizer": "adam"}, {"betas": (0.5, 0.6), "eps": 1e-3, "amsgrad": True}),
        ({"optimizer": "sgd"}, {"betas": (0.9, 0.999)}),
    ],
    ids=str,
)
def test_settings_of_a_file_that_are_not_those_here_are_named(way, others):
    config = config_of(way)
    converted = side_by_side(config, steps=1)[1].state_dict()
    assert other_settings(converted, config) == {}
    converted["param_groups"][0].update(others)
    assert other_settings(converted, config) == others


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, inputs):
        return self.used(inputs)


@every_way
def test_a_parameter_that_no_output_follows_from_has_a_gradient_of_zero(way):
    """As torch's have that keep their gradients (`zero_grad(set_to_none=False)`)."""
    config, model = config_of(way), Half()
    mine = copy.deepcopy(model)
    theirs, layout = torchs(config, model), ParameterLayout(mine)
    ours = ClientOptimizer(config, layout.values[None])
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    for _ in range(3):
        theirs.zero_grad(set_to_none=False)
        inputs = torch.randn(6, 4)
        for each in (model, mine):
            each(inputs).square().sum().backward()
        theirs.step()
        ours.move(layout.values[None], layout.take_gradients()[None])
    assert all(each.grad is None for each in mine.parameters())
    for one, other in zip(mine.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_sparse_gradients_are_gathered_with_the_others():
    model = nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Flatten(), nn.Linear(4, 1))
    dense = copy.deepcopy(model)
    dense[0].sparse = False
    gathered = []
    for each in (model, dense):
        layout = ParameterLayout(each)
        each(torch.tensor([[0, 3], [3, 4]])).sum().backward()
        gathered.append(layout.take_gradients())
    assert torch.equal(*gathered)
