"""How agents explore, as the other tool keeps it: nine keys, without which it loads no file.

Its `rnd_state` holds networks of random network distillation (Burda et al. 2018) with hidden layers
of 256 and 128 units; ours have another shape. So a file's own state is kept with the run that
was imported from it, and written again with what has changed since: epsilon, and how long episodes
lasted. A run of ours gets networks that have seen nothing yet.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainops.files.fields import is_integer, is_list, is_number
from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.environment import Space
from trainops.kinds.rl.schedules import linear
from trainops.kinds.rl.seeds import generator
from trainops.runtime.job import StateDict

KEYS = (
    "rnd_state", "current_intrinsic_weight", "min_intrinsic_weight", "variance_threshold",
    "min_survival_fraction", "max_episode_length", "survival_window", "decay_rate",
    "survival_history",
)  # fmt: skip
RND_KEYS = (
    "fixed_network", "predictor_network", "optimizer", "epsilon", "epsilon_min", "epsilon_decay",
    "obs_dim", "embed_dim", "reward_rms_mean", "reward_rms_var", "reward_rms_count",
)  # fmt: skip
HIDDEN = (256, 128)
LEARNING_RATE = 1e-4
SMALLEST_COUNT = 1e-4  # of rewards seen, before the first
# What the other tool starts with where this config has no word for it.
DEFAULTS = {
    "variance_threshold": 100.0,
    "min_survival_fraction": 0.4,
    "survival_window": 100,
    "decay_rate": 0.99,
}


def kept_exploration(exploration: Mapping[str, Any], observed: int) -> dict[str, Any] | None:
    """Return a file's exploration state as plain values and tensors; None unless it is complete."""
    rnd = exploration.get("rnd_state")
    if not isinstance(rnd, Mapping) or not (
        set(KEYS) <= exploration.keys() and set(RND_KEYS) <= rnd.keys()
    ):
        return None
    embedded = rnd["embed_dim"]
    wanted = _shapes(observed, embedded) if type(embedded) is int and embedded > 0 else {}
    networks = (rnd["fixed_network"], rnd["predictor_network"])
    if any(not isinstance(each, Mapping) or _found(each) != wanted for each in networks):
        return None
    history, window = exploration["survival_history"], exploration["survival_window"]
    if not (is_list(history) and all(map(is_number, history)) and is_integer(window)):
        return None
    state: dict[str, Any] = _plain({name: exploration[name] for name in KEYS})
    return state


def exploration_state(state: StateDict, config: RlConfig, space: Space) -> dict[str, Any]:
    """Return the nine keys: those of the file that the run came from, or new ones."""
    plain, imported = state["state"], state.get("imported") or {}
    found = imported.get("exploration") or _new(config, space, plain["environment_steps"])
    lengths = _lengths(state)
    history = [*found["survival_history"], *lengths][-int(found["survival_window"]) :]
    values = {
        **found,
        "rnd_state": {**found["rnd_state"], "epsilon": plain["epsilon"]},
        "survival_history": history,
    }
    own = {"novelty": state["novelty"]} if state.get("novelty") else {}
    return {name: values[name] for name in KEYS} | own


def _new(config: RlConfig, space: Space, steps: int) -> dict[str, Any]:
    novelty, observed = config.novelty, space.observation_dim
    drawing = generator(config.seed, "exploration of a file")
    fixed, predictor = (_network(observed, novelty.embedding, drawing) for _ in range(2))
    trained = [weights for name, weights in predictor.items() if name != "active_mask"]
    optimizer = torch.optim.Adam([each.requires_grad_() for each in trained], lr=LEARNING_RATE)
    for each in trained:
        each.requires_grad_(False)
    return {
        "rnd_state": {
            "fixed_network": fixed,
            "predictor_network": predictor,
            "optimizer": optimizer.state_dict(),
            "epsilon": 1.0,
            "epsilon_min": config.exploration.end,
            "epsilon_decay": config.exploration.decay,
            "obs_dim": observed,
            "embed_dim": novelty.embedding,
            "reward_rms_mean": 0.0,
            "reward_rms_var": 1.0,
            "reward_rms_count": SMALLEST_COUNT,
        },
        "current_intrinsic_weight": linear(novelty.weight, novelty.end, novelty.steps, steps),
        "min_intrinsic_weight": min(novelty.weight, novelty.end),
        "max_episode_length": space.max_steps,
        "survival_history": [],
        **DEFAULTS,
    }


def _network(observed: int, embedded: int, drawing: torch.Generator) -> "OrderedDict[str, Tensor]":
    """Return weights as torch.nn.Linear begins: uniform within 1 / sqrt(inputs)."""
    network = OrderedDict(active_mask=torch.ones(observed))
    shapes = _shapes(observed, embedded)
    for name, shape in shapes.items():
        if name != "active_mask":
            inputs = shapes[name.replace("bias", "weight")][1]
            network[name] = (2 * torch.rand(shape, generator=drawing) - 1) / math.sqrt(inputs)
    return network


def _shapes(observed: int, embedded: int) -> dict[str, tuple[int, ...]]:
    sizes = (observed, *HIDDEN, embedded)
    shapes: dict[str, tuple[int, ...]] = {"active_mask": (observed,)}
    for number, size in enumerate(sizes[1:]):
        shapes[f"net.{2 * number}.weight"] = (size, sizes[number])
        shapes[f"net.{2 * number}.bias"] = (size,)
    return shapes


def _found(network: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.shape) for name, each in network.items() if isinstance(each, Tensor)}


def _lengths(state: StateDict) -> list[int]:
    """Return how many steps each whole episode lasted that was played here."""
    log = state.get("episodes")
    if log is None:
        return []
    lengths: list[int] = log.column("length")[log.column("agent") >= 0].tolist()
    return lengths


def _plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's, and its arrays as tensors: what a checkpoint holds."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, Mapping):
        made = OrderedDict if isinstance(value, OrderedDict) else dict
        return made((name, _plain(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return type(value)([_plain(each) for each in value])
    return value.detach().clone() if isinstance(value, Tensor) else value
