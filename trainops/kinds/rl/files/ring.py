"""The transitions of a file of reinforcement learning, whichever of its three layouts they are in,
as rows of our ring: the oldest first, those of one step of all agents side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainops.kinds.rl.environment import StepResult
from trainops.kinds.rl.files.file import FilePopulation
from trainops.kinds.rl.files.replay import (
    Episode,
    PlainReplay,
    PrioritizedReplay,
    Replay,
    SequentialReplay,
)
from trainops.kinds.rl.replay import TransitionLayout


@dataclass(frozen=True, slots=True)
class RingRows:
    """Rows (transitions, width) of a ring; `errors` (transitions,) where the file has priorities.

    `note` says what of the file is not among them.
    """

    rows: Tensor
    errors: Tensor | None = None
    note: str = ""


def rows_of(population: FilePopulation, agents: int, layout: TransitionLayout) -> RingRows:
    """Return the file's transitions for N agents. Open episodes end where they are."""
    replay: Replay = population.flushed().replay
    if isinstance(replay, SequentialReplay):
        return _of_episodes(replay.episodes, agents, layout)
    if replay.position % agents or replay.size % agents:
        note = f"its {replay.size} transitions do not hold {agents} agents for each step"
        return RingRows(torch.zeros(0, layout.width), note=note)
    return _of_ring(replay, layout)


def steps_taken(population: FilePopulation, rows: int, agents: int) -> int:
    """Return the environment steps of all agents: a ring's counter knows those of many agents."""
    replay = population.replay
    counted = replay.position if isinstance(replay, PlainReplay) else 0
    return max(rows, counted, population.total_steps) // agents * agents


def _of_ring(replay: PlainReplay | PrioritizedReplay, layout: TransitionLayout) -> RingRows:
    """Return a ring's transitions from its oldest one on."""
    if not replay.size:
        return RingRows(torch.zeros(0, layout.width))
    turn = replay.position % replay.capacity if replay.size == replay.capacity else 0
    ordered = {name: each.roll(-turn, 0) for name, each in replay.transitions.items()}
    errors = None
    if isinstance(replay, PrioritizedReplay):
        errors = torch.from_numpy(replay.priorities[: replay.size].copy()).roll(-turn, 0)
    return RingRows(_rows(ordered, layout), errors)


def _of_episodes(episodes: Sequence[Episode], agents: int, layout: TransitionLayout) -> RingRows:
    """Return episodes as lanes, one for each agent, cut to the length of the shortest.

    Episodes of trainops say whose they are; others go where there are fewest rows.
    """
    lanes: list[list[Tensor]] = [[] for _ in range(agents)]
    for episode in episodes:
        rows = _episode_rows(episode, layout)
        owner = episode.get("agent")
        lane = int(owner[0]) if owner is not None and len(owner) else -1
        if not 0 <= lane < agents:
            lane = min(range(agents), key=lambda at: sum(map(len, lanes[at])))
        lanes[lane].append(rows)
    whole = [torch.cat([torch.zeros(0, layout.width), *lane]) for lane in lanes]
    length = min(map(len, whole))
    kept = torch.stack([lane[len(lane) - length :] for lane in whole], dim=1)
    given = sum(len(episode["actions"]) for episode in episodes)
    lost = given - length * agents
    note = (
        f"{lost} of {given} transitions are left out: they have no next observation" if lost else ""
    )
    return RingRows(kept.reshape(-1, layout.width), note=note)


def _episode_rows(episode: Episode, layout: TransitionLayout) -> Tensor:
    """Return one episode's rows; the last is an end.

    Where the file does not say what a step led to, the next observation does; the last step of an
    episode that was cut has none, so that step is left.
    """
    columns = dict(episode)
    if "next_observations" not in columns:
        seen = columns["observations"]
        columns["next_observations"] = torch.cat([seen[1:], seen[-1:]])
        if len(seen) and not bool(columns["dones"][-1]):
            columns = {name: each[:-1] for name, each in columns.items()}
    if not len(columns["actions"]):
        return torch.zeros(0, layout.width)
    ended = columns.get("truncated", torch.zeros(len(columns["actions"]))).bool().clone()
    ended[-1] |= not bool(columns["dones"][-1])
    return _rows({**columns, "truncated": ended}, layout)


def _rows(columns: Episode, layout: TransitionLayout) -> Tensor:
    """Return transitions as rows; every action was allowed where the file does not say."""
    rewards = columns["rewards_extrinsic" if "rewards_extrinsic" in columns else "rewards"]
    dones = columns["dones"].bool()
    truncated = columns.get("truncated", torch.zeros_like(dones))
    outcome = StepResult(columns["next_observations"], rewards, dones, truncated)
    masks = next_masks = None
    if layout.has_masks:
        allowed = torch.ones(len(dones), layout.actions)
        masks, next_masks = columns.get("masks", allowed), columns.get("next_masks", allowed)
    intrinsic = columns.get("rewards_intrinsic", torch.zeros_like(rewards))
    seen, actions = columns["observations"], columns["actions"]
    return layout.row(seen, actions, outcome, intrinsic, masks, next_masks)
