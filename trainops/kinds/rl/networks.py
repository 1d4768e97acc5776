"""The networks of agents: perceptrons, a dueling head, a memory."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from trainops.kinds.rl.config import NetworkConfig

Memory = tuple[Tensor, Tensor]  # hidden and cell state of an LSTM, (1, agents, units) each


class Perceptron(nn.Sequential):
    """Layers one after the other, without what a module's call looks up for hooks each time."""

    def forward(self, given: Tensor) -> Tensor:
        for layer in self._modules.values():
            given = layer.forward(given)
        return given


def perceptron(
    sizes: Sequence[int], *, layer_norm: bool = False, activation: type[nn.Module] = nn.ReLU
) -> Perceptron:
    """Return linear layers from sizes[0] to sizes[-1], activations between them."""
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(before, after))
        if number < len(sizes) - 2:
            layers += [nn.LayerNorm(after), activation()] if layer_norm else [activation()]
    return Perceptron(*layers)


class Dueling(nn.Module):
    """Q = V + A - mean A (Wang et al. 2016, equation 9)."""

    def __init__(self, features: int, num_actions: int) -> None:
        super().__init__()
        self.value = nn.Linear(features, 1)
        self.advantage = nn.Linear(features, num_actions)

    def forward(self, features: Tensor) -> Tensor:
        advantage = self.advantage(features)
        value: Tensor = self.value(features) + advantage - advantage.mean(-1, keepdim=True)
        return value


def q_network(observed: int, actions: int, config: NetworkConfig, *, dueling: bool) -> nn.Module:
    """Return a network from observations (..., observed) to values (..., actions)."""
    hidden = config.hidden_sizes
    if not dueling:
        return perceptron([observed, *hidden, actions], layer_norm=config.layer_norm)
    body = _body(observed, config)
    return Perceptron(*body, Dueling([observed, *hidden][-1], actions))


class RecurrentQ(nn.Module):
    """Layers, an LSTM, and a head: values of a sequence of observations."""

    def __init__(
        self, observed: int, actions: int, config: NetworkConfig, *, dueling: bool
    ) -> None:
        super().__init__()
        self.body = Perceptron(*_body(observed, config))
        features = [observed, *config.hidden_sizes][-1]
        self.lstm = nn.LSTM(features, config.memory_size)
        self.head: nn.Module = nn.Linear(config.memory_size, actions)
        if dueling:
            self.head = Dueling(config.memory_size, actions)

    def forward(self, observations: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """Return values (steps, agents, actions) of (steps, agents, observed), and the memory."""
        remembered, memory = self.lstm(self.body(observations), memory)
        return self.head(remembered), memory


class ActorCritic(nn.Module):
    """A policy and a value of two networks, as for classic control in the PPO paper."""

    def __init__(self, observed: int, actions: int, config: NetworkConfig) -> None:
        super().__init__()
        sizes = [observed, *config.hidden_sizes]
        norm = config.layer_norm
        self.policy = perceptron([*sizes, actions], layer_norm=norm, activation=nn.Tanh)
        self.critic = perceptron([*sizes, 1], layer_norm=norm, activation=nn.Tanh)
        _orthogonal(self.policy, last=0.01)
        _orthogonal(self.critic, last=1.0)

    def value(self, observations: Tensor) -> Tensor:
        return self.critic(observations).squeeze(-1)  # type: ignore[no-any-return]


def _body(observed: int, config: NetworkConfig) -> list[nn.Module]:
    """Return the hidden layers, the last with its activation."""
    sizes = [observed, *config.hidden_sizes]
    if len(sizes) == 1:
        return []
    layers = list(perceptron(sizes, layer_norm=config.layer_norm))
    return [*layers, nn.ReLU()]


def _orthogonal(network: nn.Sequential, *, last: float) -> None:
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    for layer in linear:
        nn.init.orthogonal_(layer.weight, last if layer is linear[-1] else 2**0.5)
        nn.init.zeros_(layer.bias)
