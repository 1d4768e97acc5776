"""Small populations that the contract is tried on: (name, config, stops)."""

WORLD = {
    "size": [3, 3],
    "affordances": [
        {"name": "Bed", "effects": {"energy": 0.3}},
        {"name": "Shop", "costs": {"energy": 0.1}, "effects": {"food": 0.5}, "reward": 0.2,
         "hours": [1, 5]},
    ],
    "meters": [
        {"name": "energy", "depletion": 0.08, "is_fatal": True},
        {"name": "food", "depletion": 0.05},
    ],
    "cascades": [{"low": "food", "below": 0.9, "drains": "energy", "by": 0.1}],
    "placement": "episode",
    "temporal": True,
    "day_steps": 6,
    "max_steps": 9,
    "mask_actions": True,
    "reward": {"survival": 0.1, "death": -1.0, "meters": {"food": 0.1}},
}  # fmt: skip
GRID = {"recipe": "grid_world", "parameters": WORLD}
CARTPOLE = {"recipe": "gymnasium", "parameters": {"id": "CartPole-v1", "max_steps": 11}}
SMALL = {
    "network": {"hidden_sizes": [6], "memory_size": 5},
    "dqn": {"learning_starts": 3, "batch_size": 4, "train_every": 2, "target_every": 3,
            "sequence_length": 3, "burn_in": 2},
    "ppo": {"rollout_steps": 5, "batch_size": 4, "epochs": 2},
    "exploration": {"steps": 100},
    "checkpoint": {"finish_episode_seconds": 0},
    "evaluation": {"every_steps": 6, "episodes": 2, "max_frames": 2},
    "log_every_steps": 9,
}  # fmt: skip
STAGES = [{"max_steps": 4, "depletion": 0.5}, {"max_steps": 8}, {"depletion": 2.0}]
NOVELTY = {"novelty": {"weight": 0.5, "embedding": 3, "steps": 150}}
SEPARATE = {"population": {"networks": "separate"}}
ADAPTIVE = {
    "curriculum": {
        "rule": "adaptive",
        "stages": STAGES,
        "window": 3,
        "min_episodes": 2,
        "advance_at": 0.6,
        "retreat_at": 0.5,
        "max_entropy": 0.9,
    }
}
ADVERSARIAL = {"curriculum": {"rule": "adversarial", "stages": STAGES, "window": 3}}


def of(world, algorithm, agents, steps, **more):
    """Return a config of N steps of all agents; settings within a section are added."""
    config = {**SMALL, **world, "algorithm": algorithm, "agents": agents}
    config["environment_steps"] = steps * agents
    for name, value in more.items():
        config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
    return config


PRIORITIZED = {"replay": {"capacity": 40, "prioritized": True, "beta_steps": 100}}
CASES = [
    ("dqn-cartpole",
     of(CARTPOLE, "dqn", 1, 22, dqn={"n_step": 3}, replay={"capacity": 12}),
     (0, 5, 13, 20)),
    ("prioritized-grid",
     of(GRID, "dqn", 8, 16, dqn={"dueling": True, "target_tau": 0.1}, **PRIORITIZED, **NOVELTY,
        **ADVERSARIAL),
     (1, 7, 14)),
    ("recurrent-grid",
     of(GRID, "recurrent_dqn", 4, 22, replay={"capacity": 48}, exploration={"start": 0.2},
        learning_rate=0.05, network={"memory_size": 16}, **ADAPTIVE),
     (3, 9, 17)),
    ("sequences-grid",  # prioritized, of n steps: everything that recurrent agents can have
     of(GRID, "recurrent_dqn", 3, 24, dqn={"n_step": 3, "dueling": True, "batch_size": 3},
        replay={"capacity": 36, "prioritized": True, "beta_steps": 100, "eta": 0.7},
        log_every_steps=15),  # not where all episodes end
     (2, 8, 19)),
    ("separate-grid",  # a network for each agent
     of(GRID, "dqn", 3, 20, dqn={"n_step": 2}, **SEPARATE, replay={"capacity": 30,
        "prioritized": True, "beta_steps": 100}, **NOVELTY, **ADAPTIVE),
     (2, 8, 17)),
    ("ppo-cartpole",
     of(CARTPOLE, "ppo", 8, 17, anneal=True, **NOVELTY),
     (2, 8, 13)),
]  # fmt: skip
