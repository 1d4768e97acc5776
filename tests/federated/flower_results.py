"""Flower's strategies on the client results of flower.json. For an interpreter that has flwr 1.41.

    python tests/federated/flower_results.py tests/federated/flower.json

prints what each strategy comes to after each round, as flower.json has it under "results".
"""

import json
import sys
from pathlib import Path

import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedAvg,
    FedYogi,
)

ADAPTIVE = {"eta": 0.1, "tau": 1e-3}


def main(path):
    given = json.loads(Path(path).read_text())
    start = np.array(given["start"], np.float32)
    rounds = list(zip(given["updates"], given["counts"], strict=True))
    results = {name: after_each(make(start), start, rounds) for name, make in STRATEGIES.items()}
    print(json.dumps(results))  # noqa: T201


def after_each(strategy, start, rounds):
    """Return the model after each round; every client sends the newest one plus its update."""
    current, found = start, []
    for number, (updates, counts) in enumerate(rounds, start=1):
        sent = [
            (None, fit_result(current + np.array(update, np.float32), count))
            for update, count in zip(updates, counts, strict=True)
        ]
        parameters, _ = strategy.aggregate_fit(number, sent, [])
        (current,) = parameters_to_ndarrays(parameters)
        found.append([float(f"{value:.9g}") for value in current])
    return found


def fit_result(values, count):
    return FitRes(Status(Code.OK, ""), ndarrays_to_parameters([values]), count, {})


def begun(strategy, **settings):
    """Return what makes a strategy that begins with a model."""
    return lambda start: strategy(initial_parameters=ndarrays_to_parameters([start]), **settings)


STRATEGIES = {
    "fedavg": begun(FedAvg),
    "fedavgm": begun(FedAvgM, server_learning_rate=0.5, server_momentum=0.9),
    "fedadam": begun(FedAdam, **ADAPTIVE, beta_1=0.9, beta_2=0.99),
    "fedyogi": begun(FedYogi, **ADAPTIVE, beta_1=0.9, beta_2=0.99),
    "fedadagrad": begun(FedAdagrad, **ADAPTIVE),
    "median": begun(FedMedian),
    "trimmed_mean": begun(FedTrimmedAvg, beta=0.2),
}

if __name__ == "__main__":
    main(sys.argv[1])
