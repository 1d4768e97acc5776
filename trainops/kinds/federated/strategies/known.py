"""The strategies that a config can name."""

from collections.abc import Mapping

from torch import Tensor

from trainops.kinds.federated.options import ServerConfig
from trainops.kinds.federated.strategies.adaptive import FedAdagrad, FedAdam, FedYogi
from trainops.kinds.federated.strategies.fedavgm import FedAvgM
from trainops.kinds.federated.strategies.fedprox import FedProx
from trainops.kinds.federated.strategies.robust import Median, TrimmedMean
from trainops.kinds.federated.strategies.strategy import FederatedStrategy

STRATEGIES: Mapping[str, type[FederatedStrategy]] = {
    "fedavg": FederatedStrategy,
    "fedprox": FedProx,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "median": Median,
    "trimmed_mean": TrimmedMean,
}


def make_strategy(config: ServerConfig, like: Tensor) -> FederatedStrategy:
    """Return the strategy that a config names, for parameters like these (P,)."""
    return STRATEGIES[config.strategy](config, like)
