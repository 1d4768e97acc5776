"""The fast modules beside the plain ones (TRAINOPS_PLAIN): what each gains on a whole job.

Both alternate in one process, with one thread; a ratio is plain to fast processor time of one turn,
which other processes on the machine change less than the time on the clock.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from torch import nn

from benchmarks.federated import advance_round, cnn, make_job, mlp, our_step
from benchmarks.rl import CARTPOLE, job_of
from trainops.kinds.federated import plain as plain_federated
from trainops.kinds.rl import plain as plain_rl
from trainops.runtime import reproducibility
from trainops.runtime.implementation import VARIABLE

TURNS, FIRST = 41, 2  # the first turns are not counted
Task = Callable[[], object]
PPO = {"algorithm": "ppo", "ppo": {"rollout_steps": 32, "batch_size": 256, "epochs": 4}}


def main() -> dict[str, Any]:
    reproducibility.set_determinism(deterministic=True, threads=1)
    figures = {name: ratios(*tasks) for name, tasks in comparisons()}
    for name, (low, middle, high) in figures.items():
        print(f"{name:62} {middle:6.2f}   {low:.2f} to {high:.2f}")
    return figures


def comparisons() -> Iterator[tuple[str, tuple[Task, Task]]]:
    """Yield names, and the same work with the fast and with the plain modules."""
    for agents, steps in ((1, 200), (64, 40)):
        yield f"RL: DQN, agents: {agents}, all", (agent(agents, steps), agent(agents, steps, "1"))
    tau: dict[str, Any] = {"target_tau": 0.01}
    yield (
        "RL: DQN, agents: 1, target network alone",
        (
            agent(1, 200, **tau),
            agent(1, 200, follow=plain_rl.follow, **tau),
        ),
    )
    yield "RL: PPO, agents: 8, all", (ppo(), ppo("1"))
    yield "federated: round, SGD, all", rounds()
    yield "federated: round, Adam, all", rounds(optimizer="adam")
    yield "federated: round, batched clients, all", rounds(batched_clients=True)
    yield (
        "federated: round, batched clients, optimizer alone",
        rounds(batched_clients=True, built_as="0"),
    )
    yield "federated: round, batched clients, loss alone", part_of("losses", plain_loss)
    yield "federated: round, batched clients, model alone", part_of("many_models", plain_models)
    for name, network in (("MLP", mlp), ("CNN", cnn)):
        yield (
            f"federated: private step, {name}, ghost clipping",
            (
                private(network, "0"),
                private(network, "1"),
            ),
        )


def ratios(fast: Task, plain: Task) -> tuple[float, float, float]:
    """Return the lowest, the median and the highest ratio of plain time to fast time."""
    found = []
    for _ in range(TURNS + FIRST):
        one, other = seconds(fast), seconds(plain)
        found.append(other / one)
    kept = found[FIRST:]
    return min(kept), median(kept), max(kept)


def seconds(task: Task) -> float:
    began = time.process_time()
    task()
    return time.process_time() - began


@contextmanager
def selected(value: str) -> Iterator[None]:
    """Set TRAINOPS_PLAIN for a moment."""
    before = os.environ.get(VARIABLE, "")
    os.environ[VARIABLE] = value
    try:
        yield
    finally:
        os.environ[VARIABLE] = before


def agent(agents: int, steps: int, value: str = "0", follow: Any = None, **dqn: Any) -> Task:
    """Return some steps of DQN; `follow` replaces what moves the target network."""
    with selected(value):
        every = 4 if agents == 1 else 1
        defaults = {"batch_size": 8 * every * agents, "train_every": every, "learning_starts": 100}
        job = job_of(CARTPOLE, agents, dqn={**defaults, **dqn})
    if follow is not None:
        job.population.learner._follow = follow  # one module in place of another
    return steps_of(job, steps)


def ppo(value: str = "0") -> Task:
    with selected(value):
        return steps_of(job_of(CARTPOLE, 8, **PPO), 64)


def steps_of(job: Any, count: int) -> Task:
    def steps() -> None:
        for _ in range(count):
            job.advance()

    return steps


def rounds(*, built_as: str = "1", **config: Any) -> tuple[Task, Task]:
    """Return a round of both. Models and losses are selected when a job is built."""
    return round_of("0", "0", **config), round_of(built_as, "1", **config)


def round_of(built_as: str, run_as: str, **config: Any) -> Task:
    with selected(built_as):
        job = make_job(**config)

    def one_round() -> None:
        with selected(run_as):
            advance_round(job)

    return one_round


def part_of(name: str, make: Callable[[Any], object]) -> tuple[Task, Task]:
    """Return rounds of batched clients, the second with one plain part of the context."""
    fast, other = make_job(batched_clients=True), make_job(batched_clients=True)
    other.context.__dict__[name] = make(other.context)  # a cached property
    return lambda: advance_round(fast), lambda: advance_round(other)


def plain_loss(context: Any) -> object:
    return plain_federated.losses_of(context.ingredients.loss)


def plain_models(context: Any) -> object:
    return plain_federated.many_models(context.layout)


def private(network: Callable[[], Any], value: str) -> Task:
    make, inputs, targets, _ = network()
    with selected(value):
        step = our_step(make(), inputs, targets, nn.functional.cross_entropy)

    def steps() -> None:
        for _ in range(5):
            step()

    return steps
