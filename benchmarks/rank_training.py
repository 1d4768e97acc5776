"""One training with two processes, by torchrun or by a loop of trainops; see `benchmarks.ranks`.

Rank 0 prints the microseconds of a step.
"""

import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from benchmarks.loop import Silent
from trainops.recipes import Recipe

WIDTH = int(os.environ.get("BENCH_WIDTH", "512"))
BATCH, EPOCHS = 64, 6
WARM_STEPS = 100
NUM_EXAMPLES = BATCH * 200  # 100 steps an epoch, of two ranks
NUM_RANKS = 2

RECIPE = Recipe(
    name="bench_ranks",
    kind="loop",
    label="ranks",
    description="For benchmarks",
    parameters="trainops.kinds.loop.settings:ModuleParameters",
    build="benchmarks.rank_training:loop",
    example={"recipe": "bench_ranks"},
)


class StepTimer:
    """Measures the steps after those that warm up."""

    def __init__(self):
        self.steps, self.begun = 0, 0.0

    def step(self):
        self.steps += 1
        if self.steps == WARM_STEPS:
            self.begun = time.perf_counter()

    def microseconds(self):
        return (time.perf_counter() - self.begun) / (self.steps - WARM_STEPS) * 1e6


def dataset():
    inputs = torch.randn(NUM_EXAMPLES, 64, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def network():
    return nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                         nn.Linear(WIDTH, 2))  # fmt: skip


def train(net, optimizer, inputs, targets):
    loss = functional.cross_entropy(net(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def loop(run, parameters):
    model = run.keep("model", network())
    net = run.wrap(model)
    optimizer = run.keep("optimizer", torch.optim.AdamW(model.parameters()))
    batches, watch = run.loader("train", dataset(), batch_size=BATCH), StepTimer()
    for _ in run.epochs(parameters.epochs):
        for inputs, targets in batches:
            loss = train(net, optimizer, inputs, targets)
            watch.step()
            yield {"train_loss": loss.detach()}
    if run.rank == 0:
        print(watch.microseconds())


def by_torchrun():
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    net = DistributedDataParallel(network())
    optimizer, examples, watch = torch.optim.AdamW(net.parameters()), dataset(), StepTimer()
    sampler = DistributedSampler(examples)
    batches = DataLoader(examples, batch_size=BATCH, sampler=sampler)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in batches:
            train(net, optimizer, inputs, targets)
            watch.step()
    if distributed.get_rank() == 0:
        print(watch.microseconds())
    distributed.destroy_process_group()


def by_loop():
    os.environ["TRAINOPS_RECIPES"] = "benchmarks.rank_training:RECIPE"
    from trainops.kind import KINDS
    from trainops.process.rank_process import RankProcess
    from trainops.process.ranks import fork
    from trainops.runtime import reproducibility
    from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
    from trainops.runtime.loop import Succeeded, run
    from trainops.runtime.ranks import Devices

    given = {"recipe": RECIPE.name, "parameters": {"epochs": EPOCHS}, "threads": 1}
    config = KINDS["loop"].parse_config(given | {"processes": NUM_RANKS})
    reproducibility.set_determinism(config.deterministic, config.threads)
    make_job = partial(KINDS["loop"].make_job, config, {}, None, None)
    devices = Devices(num_ranks=NUM_RANKS)
    ranks = fork(devices, lambda line: RankProcess(line, config, make_job).serve(), closing=[])
    ranks.begin(config)
    try:
        with tempfile.TemporaryDirectory() as directory:
            outcome = run(
                partial(make_job, ranks.devices),
                seed=config.seed,
                store=CheckpointStore(Path(directory), identity={"operation_id": "bench"}),
                policy=CheckpointPolicy(every_seconds=3600.0),
                supervisor=Silent(),
                ranks=ranks,
            )
    finally:
        ranks.close()
    assert isinstance(outcome, Succeeded), outcome  # noqa: S101


if __name__ == "__main__":
    {"torchrun": by_torchrun, "loop": by_loop}[sys.argv[1]]()
