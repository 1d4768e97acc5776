"""Environment steps per second of agents that learn, beside others; and what checkpoints cost.

All learn CartPole by DQN with the same network, batch and ratio of updates to steps, in turns in
the same run. Stable-Baselines3 runs in the environment of the interpreter that TRAINOPS_BENCH_PEERS
names. With more agents at once, a step learns from as many samples for each environment step.
"""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.loop import Silent
from trainops.kind import KINDS
from trainops.kinds.rl.config import EvaluationConfig
from trainops.kinds.rl.environment import EnvironmentContext
from trainops.kinds.rl.evaluation import evaluate
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.manifest import Candidate, Checkpoint
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.errors import CheckpointCorrupted
from trainops.runtime.loop import run

NEVER = 10**9
THREADS, ROUNDS, STEPS = 2, 3, 3000
RATIO = 8  # samples learned from for each environment step: batches of 32 every 4 steps
CARTPOLE = {"recipe": "gymnasium:CartPole-v1"}
TOWN = {"recipe": "grid_town"}
SEEDS = (1, 2, 3, 4, 5)
GOAL = 475
PPO = {
    **CARTPOLE, "algorithm": "ppo", "agents": 8, "environment_steps": 100_000, "discount": 0.98,
    "learning_rate": 1e-3, "anneal": True, "max_grad_norm": 0.5,
    "evaluation": {"every_steps": 1250},
    "ppo": {"rollout_steps": 32, "batch_size": 256, "epochs": 20, "gae_lambda": 0.8},
}  # fmt: skip
DQN = {
    **CARTPOLE, "environment_steps": 50_000, "learning_rate": 1e-3,
    "network": {"hidden_sizes": [256, 256]}, "replay": {"capacity": 100_000},
    "dqn": {"batch_size": 64, "train_every": 4, "gradient_steps": 2, "target_tau": 0.01,
            "n_step": 3},
    "exploration": {"end": 0.04, "steps": 8000}, "evaluation": {"every_steps": 2560},
}  # fmt: skip
PEER = """
import sys, time, torch
from stable_baselines3 import DQN
torch.set_num_threads(int(sys.argv[1]))
model = DQN("MlpPolicy", "CartPole-v1", device="cpu")
model.learn(500)
began = time.perf_counter()
model.learn(int(sys.argv[2]), reset_num_timesteps=False)
print(int(sys.argv[2]) / (time.perf_counter() - began))
"""


def job_of(world: dict[str, Any], agents: int, **more: Any) -> Any:
    """Return a job that learns from RATIO samples for each environment step."""
    every = 4 if agents == 1 else 1
    config = {
        **world, "agents": agents, "environment_steps": 100 * NEVER, "learning_rate": 1e-4,
        "replay": {"capacity": max(100_000, 200 * agents)},
        "dqn": {"batch_size": RATIO * every * agents, "train_every": every, "double": False,
                "learning_starts": 100, "target_every": 10_000},
        "exploration": {"steps": 10_000}, "evaluation": {"every_steps": NEVER}, **more,
    }  # fmt: skip
    engine = KINDS["rl"]
    return engine.make_job(engine.parse_config(config))


def ours(world: dict[str, Any], agents: int, steps: int, **more: Any) -> float:
    """Return environment steps per second."""
    job = job_of(world, agents, **more)
    for _ in range(max(20, 500 // agents)):
        job.advance()
    began = time.perf_counter()
    for _ in range(steps):
        job.advance()
    return steps * agents / (time.perf_counter() - began)


def minimal(steps: int) -> float:
    """Return environment steps per second of the least that DQN needs in torch."""
    import gymnasium

    torch.manual_seed(0)
    environment = gymnasium.make("CartPole-v1")
    online, target = (
        nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        for _ in range(2)
    )
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
    seen, after = torch.zeros(100_000, 4), torch.zeros(100_000, 4)
    did, gained, over = (torch.zeros(100_000) for _ in range(3))
    observation, _ = environment.reset(seed=0)
    began = 0.0
    for step in range(steps + 500):
        if step == 500:
            began = time.perf_counter()
        with torch.no_grad():
            values = online(torch.from_numpy(observation)[None])
        action = int(values.argmax()) if torch.rand(()) > 0.5 else int(torch.randint(2, ()))
        later, reward, terminated, truncated, _ = environment.step(action)
        seen[step], after[step] = torch.from_numpy(observation), torch.from_numpy(later)
        did[step], gained[step], over[step] = action, float(reward), float(terminated)
        observation = environment.reset()[0] if terminated or truncated else later
        if step % 4 == 3 and step > 100:
            rows = torch.randint(step, (32,))
            with torch.no_grad():
                wanted = gained[rows] + 0.99 * (1 - over[rows]) * target(after[rows]).amax(1)
            found = online(seen[rows]).gather(1, did[rows].long()[:, None]).squeeze(1)
            loss = nn.functional.smooth_l1_loss(found, wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(online.parameters(), 10)
            optimizer.step()
    return steps / (time.perf_counter() - began)


def peer(steps: int) -> float | None:
    interpreter = os.environ.get("TRAINOPS_BENCH_PEERS")
    if not interpreter:
        return None
    command = [interpreter, "-c", PEER, str(THREADS), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1])
        return None
    return float(done.stdout.split()[-1])


def worlds_alone(count: int, steps: int) -> float:
    """Return steps per second of the town without learning."""
    config = KINDS["rl"].parse_config(TOWN)
    recipe = config.find_recipe()  # type: ignore[attr-defined]
    world = recipe.builder()(recipe.parse_parameters({}), EnvironmentContext(seed=1))
    environment = world.make(count, 1, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    began = time.perf_counter()
    for _ in range(steps):
        actions = torch.randint(len(world.space.actions), (count,), generator=generator)
        outcome = environment.step(actions)
        ended = outcome.terminated | outcome.truncated
        environment.restart(ended.nonzero().flatten().tolist())
    return steps * count / (time.perf_counter() - began)


def speeds() -> dict[str, Any]:
    turns: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, measure in {
            "stable-baselines3": lambda: peer(STEPS),
            "minimal torch loop": lambda: minimal(STEPS),
            "trainops": lambda: ours(CARTPOLE, 1, STEPS),
            "trainops, 64 agents": lambda: ours(CARTPOLE, 64, 300),
            "trainops, 1024 agents": lambda: ours(CARTPOLE, 1024, 60),
        }.items():
            if (speed := measure()) is not None:
                turns.setdefault(name, []).append(speed)
    figures = {name: median(found) for name, found in turns.items()}
    for name, speed in figures.items():
        beside = figures.get("stable-baselines3")
        ratio = f"{speed / beside:8.1f} x stable-baselines3" if beside else ""
        print(f"{name:24} {speed:10,.0f} environment steps/s {ratio}")
    return figures


def grid_worlds() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for count, steps in ((1, 1000), (64, 500), (1024, 200), (16_384, 40), (131_072, 8)):
        figures[f"alone, {count}"] = worlds_alone(count, steps)
    for agents, steps in ((1, 1500), (64, 300), (1024, 60)):
        figures[f"learning, {agents}"] = ours(TOWN, agents, steps)
    for name, speed in figures.items():
        print(f"town {name:20} {speed:12,.0f} environment steps/s")
    return figures


class Listening(Silent):
    """Remembers the checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[Checkpoint] = []

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        self.checkpoints.append(checkpoint)

    def corrupted(self, candidate: Candidate, error: CheckpointCorrupted) -> None:
        raise error


def large_ring() -> dict[str, Any]:
    """Return what checkpoints of a ring of a million transitions write and cost."""
    agents, every, capacity = 1024, 50, 1_048_576
    more = {"replay": {"capacity": capacity}, "environment_steps": 1_300 * agents,
            "checkpoint": {"every_episodes": NEVER}}  # fmt: skip
    job = job_of(CARTPOLE, agents, dqn={"learning_starts": NEVER}, **more)
    listening = Listening()
    with tempfile.TemporaryDirectory() as directory:
        store = CheckpointStore(Path(directory), identity={"attempt": 1})
        policy = CheckpointPolicy(every_steps=every, every_seconds=NEVER)
        run(lambda: job, seed=0, store=store, policy=policy, supervisor=listening)
        figures = _written(listening.checkpoints, job, every * agents)
        figures["freeze_ms"] = _freezing(job)
    print(json.dumps(figures, indent=2))
    return figures


def _written(checkpoints: list[Checkpoint], job: Any, rows: int) -> dict[str, Any]:
    row_bytes = 4 * job.population.replay.layout.width
    new = [sum(a.size_bytes for a in each.artifacts if not a.home) for each in checkpoints]
    held = sum(a.size_bytes for a in checkpoints[-1].artifacts)
    return {
        "whole_mb": held / 1e6,
        "new_transitions_mb": rows * row_bytes / 1e6,
        "written_first_mb": new[0] / 1e6,
        "written_median_mb": median(new) / 1e6,
        "written_last_periodic_mb": new[-2] / 1e6,
        "checkpoints": len(new),
    }


def _freezing(job: Any) -> float:
    """Return how long the loop stands still for a copy after 50 more steps, in ms."""
    from trainops.runtime.checkpoint.snapshot import freeze

    into = freeze(job.state_dict())
    found = []
    for _ in range(5):
        for _ in range(50):
            job.advance()
        began = time.perf_counter()
        into = freeze(job.state_dict(), into)
        found.append(1000 * (time.perf_counter() - began))
    return median(found)


def learning(name: str, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what each seed comes to; print it."""
    found = []
    for seed in SEEDS:
        found.append(balanced({"seed": seed, **config}))
        print(name, found[-1], flush=True)
    return found


def balanced(config: dict[str, Any]) -> dict[str, Any]:
    """Return what 100 new episodes gain by a run's best network."""
    engine = KINDS["rl"]
    job: Any = engine.make_job(engine.parse_config(config))
    reached, began = None, time.perf_counter()
    while job.step < job.total_steps:
        if job.advance().get("evaluation_return", 0) >= GOAL and reached is None:
            reached = job.population.environment_steps
    seconds = time.perf_counter() - began
    trainer = job.population.trainer
    network = trainer.network if job.config.algorithm == "ppo" else trainer.online
    network.load_state_dict(job.best_model)
    evaluation = EvaluationConfig(episodes=100)
    seed = 10_000 + job.config.seed
    gained = evaluate(job.world, trainer.players(100)[0], evaluation, seed, job.device)
    return {"seed": job.config.seed, "return": gained.mean_return, "reached": reached,
            "seconds": seconds}  # fmt: skip


def main() -> dict[str, Any]:
    reproducibility.set_determinism(deterministic=True, threads=THREADS)
    return {
        "speeds": speeds(),
        "grid": grid_worlds(),
        "ring": large_ring(),
        "learning": {n: learning(n, c) for n, c in (("ppo", PPO), ("dqn", DQN))},
    }
