"""Evaluations: episodes without exploration, always from the same beginnings.

They have environments of their own, made anew for each from the same seed, and draw from no stream
that training draws from. The first of their episodes is recorded, to be played back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainops.kinds.rl.config import EvaluationConfig
from trainops.kinds.rl.environment import StepResult, World
from trainops.kinds.rl.learners.learner import Player
from trainops.kinds.rl.seeds import seed_for

FIXED = ("layout",)  # what of a frame does not move within an episode


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the episodes gained, and one of them to look at."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    recording: Mapping[str, Any]

    @property
    def mean_return(self) -> float:
        return sum(self.returns) / len(self.returns)

    @property
    def mean_length(self) -> float:
        return sum(self.lengths) / len(self.lengths)


class Playing:
    """The episodes of one player, each to its end, at most the world's own steps."""

    @torch.no_grad()
    def __init__(
        self,
        world: World,
        player: Player,
        config: EvaluationConfig,
        seed: int,
        device: torch.device,
    ) -> None:
        self.world, self.player = world, player
        self.environment = world.make(config.episodes, seed_for(seed, "evaluation"), device)
        self.gained = torch.zeros(config.episodes, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(config.episodes, dtype=torch.int64, device=device)
        self.is_open = torch.ones(config.episodes, dtype=torch.bool, device=device)
        self.recorder = EpisodeRecorder(config.max_frames)
        self.recorder.begin(self.environment.frame())

    @torch.no_grad()
    def step(self) -> Evaluation | None:
        """Let every open episode make a step; return what they came to once all are over."""
        if bool(self.is_open.any()):
            self._step()
        if bool(self.is_open.any()):
            return None
        recording = {"world": self.world.scenery(), **self.recorder.recording()}
        return Evaluation(tuple(self.gained.tolist()), tuple(self.lengths.tolist()), recording)

    def _step(self) -> None:
        environment, player = self.environment, self.player
        masks = environment.masks() if self.world.space.has_masks else None
        actions = player.act(environment.observe(), masks)
        outcome = environment.step(actions)
        self.gained += outcome.rewards * self.is_open
        self.lengths += self.is_open
        if bool(self.is_open[0]):
            self.recorder.add(environment.frame(), int(actions[0]), outcome)
        ended = outcome.terminated | outcome.truncated
        self.is_open &= ~ended
        which = ended.nonzero().flatten().tolist()
        environment.restart(which)
        player.restarted(which)


def evaluate(
    world: World, player: Player, config: EvaluationConfig, seed: int, device: torch.device
) -> Evaluation:
    """Play all of a player's episodes."""
    playing = Playing(world, player, config, seed, device)
    while (evaluation := playing.step()) is None:
        pass
    return evaluation


class EvaluationInProgress:
    """The evaluation of several players under way, one after the other. It is never saved."""

    def __init__(self, players: Sequence[Player], begin: Callable[[Player], Playing]) -> None:
        self.found: list[Evaluation] = []
        self.num_steps = 0
        self._players, self._begin = list(players), begin
        self._playing: Playing | None = None

    def go_on(self) -> bool:
        """Make a step in the open episodes of the player whose turn it is; whether all are over."""
        if self._playing is None:
            self._playing = self._begin(self._players[len(self.found)])
        self.num_steps += 1
        if (evaluation := self._playing.step()) is not None:
            self.found.append(evaluation)
            self._playing = None
        return len(self.found) == len(self._players)


class EpisodeRecorder:
    """One episode as columns of plain values: a value for each frame, the beginning included."""

    def __init__(self, max_frames: int) -> None:
        self.max_frames = max_frames
        self.fixed: dict[str, Any] = {}
        self.frames: list[dict[str, Any]] = []
        self.gained, self.length, self.terminated = 0.0, 0, False

    def begin(self, frame: Mapping[str, Any]) -> None:
        self.fixed = {name: frame[name] for name in FIXED if name in frame}
        self._keep(frame, action=None, reward=0.0)

    def add(self, frame: Mapping[str, Any], action: int, outcome: StepResult) -> None:
        reward = float(outcome.rewards[0])
        self.gained += reward
        self.length += 1
        self.terminated = bool(outcome.terminated[0])
        if len(self.frames) < self.max_frames:
            self._keep(frame, action=action, reward=round(reward, 4))

    def recording(self) -> dict[str, Any]:
        names = self.frames[0]
        return {
            **self.fixed,
            "return": self.gained,
            "length": self.length,
            "terminated": self.terminated,
            "frames": {name: [frame[name] for frame in self.frames] for name in names},
        }

    def _keep(self, frame: Mapping[str, Any], **outcome: Any) -> None:
        moving = {name: value for name, value in frame.items() if name not in FIXED}
        self.frames.append(moving | outcome)
