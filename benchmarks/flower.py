"""Rounds of FedAvg in Flower's simulation: run by a Python that has flwr[simulation] and torch.

Usage: python benchmarks/flower.py CLIENTS.npz ROUNDS. The file has inputs_0, targets_0, inputs_1, …
of the clients, and held_inputs, held_targets. Prints JSON: the seconds of each round, the first
with the start of its workers, and the accuracy; exits with 3 where Flower is not there.
"""

import json
import sys
import time
import warnings
from importlib.util import find_spec
from itertools import pairwise

RATE, BATCH, HIDDEN = 0.1, 32, 64


def network(arrays=()):
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, 10),
    )  # fmt: skip
    with torch.no_grad():
        for each, values in zip(model.parameters(), arrays, strict=False):
            each.copy_(torch.from_numpy(values))
    return model


def taken(model):
    return [each.detach().numpy() for each in model.parameters()]


def client_app(path):
    import numpy as np
    import torch
    from flwr.client import ClientApp, NumPyClient

    class Client(NumPyClient):
        def __init__(self, number):
            held = np.load(path)
            self.inputs = torch.from_numpy(held[f"inputs_{number}"])
            self.targets = torch.from_numpy(held[f"targets_{number}"])

        def fit(self, parameters, config):
            model = network(parameters)
            optimizer = torch.optim.SGD(model.parameters(), RATE)
            for some in torch.randperm(len(self.targets)).split(BATCH):
                optimizer.zero_grad()
                scores = model(self.inputs[some])
                torch.nn.functional.cross_entropy(scores, self.targets[some]).backward()
                optimizer.step()
            return taken(model), len(self.targets), {}

    return ClientApp(lambda context: Client(context.node_config["partition-id"]).to_client())


def server_app(judge, count, rounds):
    import torch
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg

    def server(context):
        torch.manual_seed(0)
        first = ndarrays_to_parameters(taken(network()))
        strategy = FedAvg(
            fraction_evaluate=0.0, evaluate_fn=judge, min_fit_clients=count,
            min_available_clients=count, initial_parameters=first,
        )  # fmt: skip
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    return ServerApp(server_fn=server)


def main():
    path, rounds = sys.argv[1], int(sys.argv[2])
    if find_spec("flwr") is None or find_spec("ray") is None:
        sys.exit(3)
    warnings.simplefilter("ignore")
    import numpy as np
    import torch
    from flwr.simulation import run_simulation

    data, ended, accuracies = np.load(path), [], []
    count = sum(name.startswith("inputs_") for name in data.files)

    def judge(number, parameters, config):
        with torch.no_grad():
            scores = network(parameters)(torch.from_numpy(data["held_inputs"]))
        right = scores.argmax(1) == torch.from_numpy(data["held_targets"])
        accuracies.append(right.float().mean().item())
        ended.append(time.perf_counter())  # the first time before any round
        return 0.0, {}

    run_simulation(
        server_app=server_app(judge, count, rounds), client_app=client_app(path),
        num_supernodes=count,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )  # fmt: skip
    seconds = [later - earlier for earlier, later in pairwise(ended)]
    print(json.dumps({"seconds": seconds, "accuracy": accuracies[-1]}))


if __name__ == "__main__":
    main()
