"""Replay buffers as a file of reinforcement learning holds them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from trainops.files.fields import Fields, shown

PLAIN = (
    "observations", "actions", "rewards_extrinsic", "rewards_intrinsic", "next_observations",
    "dones",
)  # fmt: skip
PRIORITIZED = ("observations", "actions", "rewards", "next_observations", "dones")
EPISODE = ("observations", "actions", "dones")
REWARDS = ("rewards", "rewards_extrinsic", "rewards_intrinsic")
LATER = ("rewards", "rewards_shaping", "rewards_extrinsic", "rewards_intrinsic")
TABLES = ("observations", "next_observations", "masks", "next_masks")  # of two dimensions
OWN = (  # in files of trainops only
    "next_observations", "truncated", "masks", "next_masks", "agent", "rewards_intrinsic",
)  # fmt: skip

Episode: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class PlainReplay:
    """A ring of transitions. `position` may grow; the slot is `position % capacity`."""

    size: int
    position: int
    capacity: int
    transitions: Mapping[str, Tensor]  # empty before the first one


@dataclass(frozen=True, slots=True, kw_only=True)
class PrioritizedReplay:
    """A ring whose transitions are drawn by `priorities`, float32 of length `capacity`."""

    size: int
    position: int
    capacity: int
    transitions: Mapping[str, Tensor]
    priorities: NDArray[Any]
    max_priority: float
    alpha: float
    beta: float
    beta_annealing: bool = False


@dataclass(frozen=True, slots=True)
class SequentialReplay:
    """Whole episodes, the oldest first; `capacity` counts transitions."""

    episodes: tuple[Episode, ...]
    capacity: int

    @property
    def num_transitions(self) -> int:
        return sum(len(each["actions"]) for each in self.episodes)

    def with_episode(self, episode: Episode) -> "SequentialReplay":
        """Return the buffer with one more, without the oldest ones that no longer fit."""
        longer = replace(self, episodes=(*self.episodes, episode))
        while longer.num_transitions > self.capacity and longer.episodes:
            longer = replace(longer, episodes=longer.episodes[1:])
        return longer


Replay: TypeAlias = PlainReplay | PrioritizedReplay | SequentialReplay


def read_replay(fields: Fields) -> Replay:
    """Return the buffer, whichever of the three it is."""
    capacity = fields.integer("capacity", at_least=1)
    if fields.has("episodes"):
        return _read_sequential(fields, capacity)
    if fields.has("priorities"):
        return _read_prioritized(fields, capacity)
    size = fields.integer("size")
    replay = PlainReplay(
        size=size,
        position=fields.integer("position"),
        capacity=capacity,
        transitions=_read_transitions(fields, PLAIN, size),
    )
    _check_ring(fields, "size", size, replay.position, capacity)
    return replay


def write_replay(replay: Replay) -> dict[str, Any]:
    """Return the buffer with the keys that the other tool writes."""
    match replay:
        case PlainReplay():
            return {
                "size": replay.size,
                "position": replay.position,
                "capacity": replay.capacity,
                **(replay.transitions or dict.fromkeys(PLAIN)),
            }
        case PrioritizedReplay():
            return {
                "capacity": replay.capacity,
                "alpha": replay.alpha,
                "beta": replay.beta,
                "beta_annealing": replay.beta_annealing,
                **(replay.transitions or dict.fromkeys(PRIORITIZED)),
                "priorities": replay.priorities,
                "max_priority": replay.max_priority,
                "position": replay.position,
                "size_current": replay.size,
            }
        case SequentialReplay():
            return {
                "num_transitions": replay.num_transitions,
                "episodes": [dict(each) for each in replay.episodes],
                "capacity": replay.capacity,
            }


def read_episode(fields: Fields, names: Sequence[str]) -> Episode:
    """Return these tensors of an episode, and those that only files of trainops have."""
    own = (name for name in OWN if name not in names and fields.has(name))
    episode = {name: fields.tensor(name) for name in (*names, *own)}
    for name, tensor in episode.items():
        dims = 2 if name in TABLES else 1
        if tensor.numel() and tensor.dim() != dims:
            fields.wrong(name, f"is {shown(tensor)}; must have {dims} dimensions")
    return episode


def finished(episode: Mapping[str, Any], like: Replay) -> Episode:
    """Return an open episode as the buffer keeps closed ones.

    Where the buffer tells rewards of the world from the agent's own, all were the world's, unless
    the episode says otherwise.
    """
    closed = {name: episode[name] for name in (*EPISODE, *OWN) if name in episode}
    known = like.episodes[0] if isinstance(like, SequentialReplay) and like.episodes else {}
    intrinsic = closed.pop("rewards_intrinsic", torch.zeros_like(episode["rewards"]))
    if "rewards" in known:
        return {**closed, "rewards": episode["rewards"]}
    return {**closed, "rewards_extrinsic": episode["rewards"], "rewards_intrinsic": intrinsic}


def observation_dims(replay: Replay) -> set[int]:
    """Return the sizes of one observation that occur: one, or none in an empty buffer."""
    held = replay.episodes if isinstance(replay, SequentialReplay) else (replay.transitions,)
    return {
        each[name].shape[1]
        for each in held
        for name in ("observations", "next_observations")
        if name in each
    }


def _read_prioritized(fields: Fields, capacity: int) -> PrioritizedReplay:
    size = fields.integer("size_current")
    replay = PrioritizedReplay(
        size=size,
        position=fields.integer("position"),
        capacity=capacity,
        transitions=_read_transitions(fields, PRIORITIZED, size),
        priorities=fields.array("priorities", "float32", 1),
        max_priority=fields.number("max_priority", at_least=0),
        alpha=fields.number("alpha", at_least=0),
        beta=fields.number("beta", at_least=0),
        beta_annealing=fields.flag("beta_annealing", default=False),
    )
    _check_ring(fields, "size_current", size, replay.position, capacity)
    if len(replay.priorities) != capacity:
        fields.wrong("priorities", f"are {len(replay.priorities)} for a capacity of {capacity}")
    return replay


def _read_sequential(fields: Fields, capacity: int) -> SequentialReplay:
    episodes = []
    for number, each in enumerate(fields.each("episodes")):
        names = [*EPISODE, *(name for name in REWARDS if each.has(name))]
        if names == [*EPISODE]:
            each.wrong("rewards", "is missing; must be a tensor")
        episode = read_episode(each, names)
        lengths = {len(tensor) for tensor in episode.values() if tensor.dim()}
        if len(lengths) != 1 or lengths == {0}:
            fields.wrong(f"episodes[{number}]", f"has tensors of lengths {sorted(lengths)}")
        episodes.append(episode)
    expected = fields.integer("num_transitions")
    if fields.problems:
        return SequentialReplay((), capacity)
    replay = SequentialReplay(tuple(episodes), capacity)
    if replay.num_transitions != expected:
        fields.wrong(
            "num_transitions", f"is {expected}; the episodes have {replay.num_transitions}"
        )
    if replay.num_transitions > capacity:
        fields.wrong("capacity", f"is {capacity}; the episodes have {replay.num_transitions}")
    return replay


def _read_transitions(fields: Fields, names: tuple[str, ...], size: int) -> dict[str, Tensor]:
    """Return `size` transitions; other tensors of newer files of the tool are kept with them."""
    if not size:
        return {}
    later = [name for name in (*LATER, *OWN) if name not in names and fields.has(name)]
    transitions = {name: fields.tensor(name) for name in (*names, *later)}
    for name, tensor in transitions.items():
        dims = 2 if name in TABLES else 1
        if tensor.dim() != dims or len(tensor) != size:
            fields.wrong(name, f"is {shown(tensor)}; must have {dims} dimensions, {size} rows")
    return transitions


def _check_ring(fields: Fields, name: str, size: int, position: int, capacity: int) -> None:
    """Before the ring is full, the next slot is the first free one."""
    if size > capacity or (size < capacity and size != position):
        fields.wrong(name, f"is {size} at position {position} of a ring of {capacity}")
