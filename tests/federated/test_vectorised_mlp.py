"""Many models at once, chains of linear layers and others, beside each of them by itself."""

from functools import partial

import pytest
import torch
from torch import nn

from trainops.kinds.federated.fast.losses import losses_of
from trainops.kinds.federated.fast.vectorised_mlp import OTHERS, VectorisedMLP, is_mlp, many_models
from trainops.kinds.federated.parameter_layout import ParameterLayout

CLOSE = {"rtol": 1e-4, "atol": 1e-6}
SETTINGS = {nn.LeakyReLU: {"negative_slope": 0.3}, nn.ELU: {"alpha": 1.5}, nn.Dropout: {"p": 0.0}}


def tied():
    one, other = nn.Linear(3, 3), nn.Linear(3, 3)
    other.weight = one.weight
    return nn.Sequential(one, nn.ReLU(), other)


def around(layer):
    """Return a chain that has such a layer before all parameters, and between them."""
    settings = SETTINGS.get(layer, {})
    return nn.Sequential(
        layer(**settings), nn.Flatten(), nn.Linear(6, 5), layer(**settings), nn.Linear(5, 3)
    )


CHAINS = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), nn.Tanh()),
    "several places": lambda: nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 2)),
    "flat in between": lambda: nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.Linear(8, 3)),
    "approximate": lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU("tanh"), nn.Linear(4, 2)),
    **{each.__name__: partial(around, each) for each in OTHERS if each is not nn.Flatten},
}


def doubled():
    model = CHAINS["mlp"]()
    model[2].register_forward_hook(lambda _, __, outputs: 2 * outputs)
    return model


OTHER_MODELS = {
    "somebody listens": doubled,
    "tied": tied,
    "in place": lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True)),
    "normed": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)),
}


@pytest.mark.parametrize("name", CHAINS | OTHER_MODELS)
def test_many_at_once_are_each_what_one_is(name):
    torch.manual_seed(1)
    layout = ParameterLayout((CHAINS | OTHER_MODELS)[name]())
    rows = layout.values + torch.randn(3, len(layout.values)) / 3
    models = many_models(layout)(rows)
    assert isinstance(models, VectorisedMLP) is is_mlp(layout.model) is (name in CHAINS)
    for _ in range(2):  # what was found for the first batch is not in the way of the second
        inputs = torch.randn(3, 5, 2, 3)
        outputs, pull = models((inputs,))
        cotangents = torch.randn(outputs.shape)
        gradients = pull(cotangents)
        for number in range(3):
            layout.put(rows[number], {})
            alone = layout.model(inputs[number])
            alone.backward(cotangents[number])
            torch.testing.assert_close(outputs[number], alone, **CLOSE)
            torch.testing.assert_close(gradients[number], layout.take_gradients(), **CLOSE)
        rows -= 0.1 * gradients  # the models move with their rows


@pytest.mark.parametrize("p", [0.4, 1.0])
def test_what_was_dropped_learns_nothing(p):
    torch.manual_seed(1)
    layout = ParameterLayout(
        nn.Sequential(nn.Linear(1, 50), nn.Dropout(p), nn.Linear(50, 1, bias=False))
    )
    rows = torch.ones(2, len(layout.values))
    outputs, pull = many_models(layout)(rows)((torch.ones(2, 1, 1),))
    weights, biases, last = layout.pieces(pull(torch.ones(2, 1, 1)))
    is_kept = last.squeeze(1) != 0  # (2, 50): what a unit passed on, (1 + 1) / (1 - p) or nothing
    assert torch.equal(is_kept.any(1), torch.tensor([p < 1] * 2))
    assert (is_kept[0] != is_kept[1]).any() == (p < 1), "each model drops its own"
    passed = is_kept * (1 / (1 - p) if p < 1 else 0.0)
    torch.testing.assert_close(last.squeeze(1), 2 * passed)
    torch.testing.assert_close(biases, passed)
    torch.testing.assert_close(weights.squeeze(2), passed)
    torch.testing.assert_close(outputs.view(2), 2 * passed.sum(1))


def test_nothing_is_dropped_where_a_model_is_judged():
    layout = ParameterLayout(nn.Sequential(nn.Dropout(0.9), nn.Linear(4, 2)).eval())
    inputs = torch.randn(1, 5, 4)
    outputs, _ = many_models(layout)(layout.values.unsqueeze(0))((inputs,))
    torch.testing.assert_close(outputs[0], layout.model(inputs[0]), **CLOSE)


def test_a_layer_in_two_places_is_refused():
    layer = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="layer 2 is layer 0 again"):
        many_models(ParameterLayout(nn.Sequential(layer, nn.ReLU(), layer)))
    blocks = nn.Sequential(nn.Sequential(layer, nn.ReLU()), nn.Sequential(layer, nn.LayerNorm(4)))
    with pytest.raises(ValueError, match=r"layer 1.0 is layer 0.0 again"):
        many_models(ParameterLayout(blocks))
    same = nn.ReLU()
    many_models(
        ParameterLayout(nn.Sequential(layer, same, nn.LayerNorm(4), same))
    )  # it has no parameters


def of_pixels(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)


LOSSES = {
    "classes": (nn.functional.cross_entropy, (4,), lambda: torch.randint(0, 4, (5,))),
    "shares of classes": (nn.functional.cross_entropy, (4,), lambda: torch.rand(5, 4)),
    "pixels": (nn.functional.cross_entropy, (4, 2, 2), lambda: torch.randint(0, 4, (5, 2, 2))),
    "another function": (of_pixels, (4,), lambda: torch.randint(0, 4, (5,))),
    "numbers": (nn.functional.mse_loss, (2,), lambda: torch.rand(5, 2)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients_are_those_of_each_example(name):
    torch.manual_seed(1)
    loss, shape, draw = LOSSES[name]
    outputs, targets, shares = torch.randn(5, *shape), draw(), torch.rand(5)
    computed = losses_of(loss)(*(each.unsqueeze(0) for each in (outputs, targets, shares)))
    losses, gradients = (each.squeeze(0) for each in computed)
    outputs.requires_grad_()
    for place in range(5):
        one = loss(outputs[place].unsqueeze(0), targets[place].unsqueeze(0))
        torch.testing.assert_close(losses[place], one.detach())
        (one * shares[place]).backward()
    assert outputs.grad is not None
    torch.testing.assert_close(gradients, outputs.grad)


def test_a_class_that_is_to_be_ignored_is():
    outputs, targets = torch.randn(1, 3, 4), torch.tensor([[1, -100, 2]])
    losses, gradients = losses_of(nn.functional.cross_entropy)(outputs, targets, torch.ones(1, 3))
    assert losses[0, 1] == 0 and not gradients[0, 1].any()
    assert losses[0, [0, 2]].all() and gradients[0, [0, 2]].all()
