"""Many models at once, chains of linear layers and others, beside each of them by itself."""

import pytest
import torch
from torch import nn

from trainops.engines.federated.chains import _is_chain, many_models
from trainops.engines.federated.layout import Layout

CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def tied():
    one, other = nn.Linear(3, 3), nn.Linear(3, 3)
    other.weight = one.weight
    return nn.Sequential(one, nn.ReLU(), other)


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), nn.Tanh()),
    "several places": lambda: nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.Linear(8, 3)),
    "tied": tied,
    "in place": lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True)),
    "normed": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_many_at_once_are_each_what_one_is(name):
    torch.manual_seed(1)
    layout = Layout(MODELS[name]())
    assert _is_chain(layout.model) is (name not in ("tied", "in place", "normed"))
    rows = (layout.values + torch.randn(3, len(layout.values)) / 3).requires_grad_()
    inputs = torch.randn(3, 5, 2, 3)
    pieces = zip(layout.names, layout.parameters, rows.split(layout.sizes, 1), strict=True)
    parameters = {name: piece.view(-1, *each.shape) for name, each, piece in pieces}
    outputs = many_models(layout.model)(parameters, (inputs,))
    (gradients,) = torch.autograd.grad(outputs.sum(), rows)
    for number in range(3):
        layout.put(rows[number].detach(), {})
        alone = layout.model(inputs[number])
        alone.sum().backward()
        torch.testing.assert_close(outputs[number], alone, **CLOSE)
        torch.testing.assert_close(gradients[number], layout.take_gradients(), **CLOSE)


def test_a_layer_in_two_places_is_refused():
    layer = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="layer 2 is layer 0 again"):
        many_models(nn.Sequential(layer, nn.ReLU(), layer))
    blocks = nn.Sequential(nn.Sequential(layer, nn.ReLU()), nn.Sequential(layer, nn.LayerNorm(4)))
    with pytest.raises(ValueError, match=r"layer 1.0 is layer 0.0 again"):
        many_models(blocks)
    same = nn.ReLU()
    many_models(nn.Sequential(layer, same, nn.LayerNorm(4), same))  # it has no parameters
