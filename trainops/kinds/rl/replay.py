"""The ring of transitions: on the device for learning, and as a stream for checkpoints.

All agents' transitions of one step lie side by side, so the next step of the same agent is as many
rows further as there are agents: n-step returns and sequences are looked up when they are drawn,
and there are no open episodes to keep anywhere else.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainops.kinds.rl.environment import Space, StepResult
from trainops.kinds.rl.targets import Horizon, n_step
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.errors import IncompatibleState

FLUSH_ROWS = 65_536  # at most so many rows wait for the stream


class Batch(NamedTuple):
    """Transitions drawn from the ring; the first dimension is the batch."""

    observations: Tensor
    actions: Tensor  # int64
    rewards: Tensor  # of the world
    novelty: Tensor  # the agent's own reward
    terminated: Tensor
    truncated: Tensor
    next_observations: Tensor
    masks: Tensor | None  # of what could be done there; None where everything can be
    next_masks: Tensor | None

    def all_rewards(self, weight: float) -> Tensor:
        """Return the world's rewards with the agents' own, by this weight."""
        return self.rewards + weight * self.novelty if weight else self.rewards


class TransitionLayout:
    """Where in a row of numbers each thing lies."""

    def __init__(self, space: Space) -> None:
        self.observed, self.actions = space.observation_dim, len(space.actions)
        self.has_masks = space.has_masks
        self.width = 2 * self.observed + 5 + (2 * self.actions if space.has_masks else 0)

    def row(
        self, observations: Tensor, actions: Tensor, outcome: StepResult, novelty: Tensor | None,
        masks: Tensor | None, next_masks: Tensor | None, out: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Return (environments, width) float32, written to `out` where that is given."""
        rewards = outcome.rewards
        numbers = torch.stack(
            [actions, rewards, torch.zeros_like(rewards) if novelty is None else novelty,
             outcome.terminated, outcome.truncated], dim=1,
        )  # fmt: skip
        parts = [observations, outcome.observations, numbers]
        parts += [each for each in (masks, next_masks) if each is not None]
        return torch.cat(parts, dim=1, out=out)

    def batch(self, rows: Tensor) -> Batch:
        """Undo `row`, over any leading dimensions."""
        size = self.observed
        end = 2 * size + 5
        actions, rewards, novelty, terminated, truncated = rows[..., 2 * size : end].unbind(-1)
        return Batch(
            observations=rows[..., :size],
            actions=actions.long(),
            rewards=rewards,
            novelty=novelty,
            terminated=terminated > 0,
            truncated=truncated > 0,
            next_observations=rows[..., size : 2 * size],
            masks=rows[..., end : end + self.actions] > 0 if self.has_masks else None,
            next_masks=rows[..., end + self.actions :] > 0 if self.has_masks else None,
        )


class Ring:
    """Rows of numbers from 0 that keep their number; the newest of them are here, to be read."""

    layout: TransitionLayout
    agents: int  # whose rows of one step lie side by side
    slots: int
    rows: Tensor  # (slots, width)
    count: int  # of rows ever added
    floor: int  # the first row that was ever here; later than 0 in a ring that was enlarged

    def __len__(self) -> int:
        return min(self.count - self.floor, self.slots)

    @property
    def first(self) -> int:
        """The number of the oldest row that is here."""
        return self.count - len(self)

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the numbers of rows drawn evenly, with repetition."""
        drawn = torch.randint(len(self), (size,), generator=generator, device=self.rows.device)
        return drawn + self.first

    def at(self, numbers: Tensor) -> Batch:
        """Return the rows of these numbers, which must be here."""
        slots = numbers % self.slots
        rows = self.rows.index_select(0, slots) if slots.dim() == 1 else self.rows[slots]
        return self.layout.batch(rows)

    def horizon(self, numbers: Tensor, steps: int, discount: float, weight: float) -> Horizon:
        """Return the n-step returns from these rows; fewer steps where no more have been made.

        `weight` is that of the agents' own reward.
        """
        ahead = numbers[:, None] + self.agents * torch.arange(steps, device=numbers.device)
        is_here = ahead < self.count
        batch = self.at(torch.where(is_here, ahead, numbers[:, None]))
        ended = batch.terminated | batch.truncated
        ended[:, :-1] |= ~is_here[:, 1:]
        return n_step(batch.all_rewards(weight), batch.terminated, ended, discount)


class Replay(Ring):
    """The newest transitions of all agents, and the stream of them that checkpoints write."""

    def __init__(self, space: Space, agents: int, capacity: int, device: torch.device) -> None:
        self.layout, self.agents = TransitionLayout(space), agents
        self.slots = capacity // agents * agents
        self.rows = torch.zeros(self.slots, self.layout.width, device=device)
        self.count, self.floor = 0, 0
        self.breaks: list[int] = []  # rows after which an agent's next one is of another episode
        self._stream = Stream({"transition": (torch.float32, (self.layout.width,))})

    def add(
        self, observations: Tensor, actions: Tensor, outcome: StepResult, novelty: Tensor | None,
        masks: Tensor | None, next_masks: Tensor | None,
    ) -> slice:  # fmt: skip
        """Take what came of a step of each agent; return the slots that it has now."""
        start = self.count % self.slots
        taken = slice(start, start + self.agents)
        if self.count - len(self._stream) >= min(self.slots, FLUSH_ROWS):
            self._flush()
        transition = observations, actions, outcome, novelty, masks, next_masks
        self.layout.row(*transition, out=self.rows[taken])
        self.count += self.agents
        return taken

    def place(self) -> dict[str, Any]:
        """Return how it stands: what a checkpoint says beside the stream."""
        return {"capacity": self.slots, "floor": self.floor, "breaks": list(self.breaks)}

    def stream(self) -> Stream:
        """Return everything so far that is still of use; only what is new is copied."""
        self._flush()
        self._stream.forget(self.first)
        return self._stream

    def load(self, stream: object, breaks: list[int], floor: int) -> None:
        """Take over the newest rows of a stream. Raises IncompatibleState."""
        if not isinstance(stream, Stream) or stream.columns != self._stream.columns:
            raise IncompatibleState("replay is no stream of transitions of this world")
        if len(stream) % self.agents:
            raise IncompatibleState(f"replay has {len(stream)} rows of {self.agents} agents")
        self._stream, self.count, self.floor = stream.copy(), len(stream), floor
        self.breaks = list(breaks)
        if stream.first_row > self.first:
            raise IncompatibleState(
                f"replay begins at row {stream.first_row}; this ring needs it from {self.first}"
            )
        newest = stream.column("transition")[self.first - stream.first_row :]
        slots = torch.arange(self.first, self.count) % max(1, self.slots)
        self.rows[slots.to(self.rows.device)] = newest.to(self.rows.device)
        for number in self.breaks:
            self._cut(number)

    def cut(self) -> None:
        """Note that what comes next is of new episodes, though these have not ended."""
        for number in range(max(self.first, self.count - self.agents), self.count):
            self.breaks.append(number)
            self._cut(number)

    def _cut(self, number: int) -> None:
        if number >= self.first:
            self.rows[number % self.slots, 2 * self.layout.observed + 4] = 1.0

    def require_capacity(self, given: int) -> None:
        """Raise IncompatibleState for a state of a ring of another capacity."""
        if given != self.slots:
            raise IncompatibleState(
                f"replay.capacity is {given} in the state and {self.slots} here; "
                "a fork takes the newest transitions over"
            )

    def _flush(self) -> None:
        start = len(self._stream)
        while start < self.count:
            slot = start % self.slots
            size = min(self.count - start, self.slots - slot)
            self._stream.append({"transition": self.rows[slot : slot + size].cpu()})
            start += size
        self.breaks = [number for number in self.breaks if number >= self.first]


class Lane(Ring):
    """One agent's rows of a ring, as a ring of its own: nothing is copied."""

    agents = 1

    def __init__(self, ring: Replay, agent: int) -> None:
        self.ring, self.layout = ring, ring.layout
        self.slots = ring.slots // ring.agents
        self.rows = ring.rows.view(self.slots, ring.agents, ring.layout.width)[:, agent]

    @property
    def count(self) -> int:  # type: ignore[override]
        return self.ring.count // self.ring.agents

    @property
    def floor(self) -> int:  # type: ignore[override]
        return self.ring.floor // self.ring.agents


def stream_of(rows: Tensor, count: int) -> Stream:
    """Return a ring's stream with these rows, the newest of `count` that ever were."""
    floor, width = count - len(rows), rows.shape[1]
    stream = Stream({"transition": (torch.float32, (width,))})
    stream.first_segment = floor // stream.segment_rows
    before = torch.zeros(floor - stream.first_row, width)
    stream.append({"transition": torch.cat([before, rows.float()])})
    return stream
