"""The grid world: any number of copies, stepped at once by a few operations on tensors."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from trainops.kinds.rl.environment import Environment, EnvironmentContext, Frame, Space, StepResult
from trainops.kinds.rl.grid.rules import rules_of
from trainops.kinds.rl.grid.sight import clock, fields_of, offsets, window
from trainops.kinds.rl.grid.substrate import cell_numbers, cells_at, directions, moved
from trainops.kinds.rl.recipes.grid_world import GridWorldParameters
from trainops.kinds.rl.seeds import generator
from trainops.runtime.job import StateDict

AXES = (("left", "right"), ("up", "down"), ("below", "above"))
STATE = ("positions", "layout", "meters", "ages", "limits", "depletion", "visits", "uses")


class GridWorld:
    """What grid_world and its levels build."""

    def __init__(self, parameters: GridWorldParameters, context: EnvironmentContext) -> None:
        self.parameters = parameters
        self.seed = context.seed
        dimensions = len(parameters.size)
        names = tuple(each.name for each in parameters.affordances)
        is_named = parameters.use == "named" or not dimensions
        uses = tuple(f"use {name}" for name in names) if is_named else ("use",) if names else ()
        self.space = Space(
            substrate=f"Grid{dimensions}D" if dimensions else "Aspatial",
            position_dim=dimensions,
            fields=fields_of(parameters),
            actions=(*(name for axis in AXES[:dimensions] for name in axis), *uses, "wait"),
            max_steps=parameters.max_steps,
            has_masks=parameters.mask_actions,
            meters=tuple(meter.name for meter in parameters.meters),
            affordances=names,
            foreign_ids=tuple(parameters.field_ids),
        )
        self.layout = self._draw_layout()

    def make(self, count: int, seed: int, device: torch.device) -> Environment:
        return GridEnvironment(self, count, seed, device)

    def scenery(self) -> Mapping[str, Any]:
        return {
            "size": list(self.parameters.size),
            "actions": list(self.space.actions),
            "affordances": list(self.space.affordances),
            "meters": list(self.space.meters),
        }

    def _draw_layout(self) -> Tensor:
        """Return a cell for each affordance, (K, dimensions); drawn ones are never shared."""
        size = tuple(self.parameters.size)
        given = [each.position for each in self.parameters.affordances]
        taken = {tuple(place) for place in given if place is not None}
        order = torch.randperm(prod(size), generator=generator(self.seed, "layout"))
        free = (cell for cell in cells_at(order, size).tolist() if tuple(cell) not in taken)
        if not size:
            return torch.zeros(len(given), 0, dtype=torch.int64)
        places = [next(free, place) if place is None else place for place in given]
        return torch.tensor(places, dtype=torch.int64).view(len(given), len(size))


class GridEnvironment:
    """Copies of one grid world, each with an agent: positions, meters and ages as tensors."""

    def __init__(self, world: GridWorld, count: int, seed: int, device: torch.device) -> None:
        self.world, self.parameters, self.count = world, world.parameters, count
        self.size = tuple(world.parameters.size)
        self.lengths = torch.tensor(self.size, dtype=torch.int64, device=device)
        self.rules = rules_of(world.parameters, device)
        self.generator = generator(seed, "grid world", device)
        self._set_actions(device)
        kinds = len(world.space.affordances)
        self.layout = world.layout.to(device).expand(count, -1, -1).clone()
        self.positions = torch.zeros(count, len(self.size), dtype=torch.int64, device=device)
        self.meters = self.rules.initial.expand(count, -1).clone()
        self.ages = torch.zeros(count, dtype=torch.int64, device=device)
        self.limits = torch.full_like(self.ages, world.space.max_steps)
        self.depletion = torch.ones(count, device=device)
        self.visits = torch.zeros(prod(self.size), dtype=torch.int64, device=device)
        self.uses = torch.zeros(kinds, dtype=torch.int64, device=device)
        self.last_used = torch.zeros(count, kinds, dtype=torch.bool, device=device)
        self.restart(range(count))

    def observe(self) -> Tensor:
        parts = []
        if self.size:
            parts.append(self.positions.float() / (self.lengths - 1).clamp(min=1))
            away = offsets(
                self.positions, self.layout, self.lengths, self.parameters.boundary == "wrap"
            )
            if self.parameters.vision is None:
                cell = torch.zeros(self.count, len(self.visits), device=self.positions.device)
                parts.append(cell.scatter_(1, self._cells()[:, None], 1.0))
                if self.parameters.is_drawn:
                    parts.append((away.float() / self.lengths).flatten(1))
            elif len(self.uses):
                parts.append(window(away, self.parameters.vision))
            parts.append((away == 0).all(-1).float())
        parts.append(self.meters)
        if self.parameters.temporal:
            parts.append(clock(self.ages, self.limits, self.parameters.day_steps))
        return torch.cat(parts, dim=1)

    def masks(self) -> Tensor:
        reached = moved(
            self.positions[:, None, :], self.moves, self.lengths, self.parameters.boundary
        )
        does_move = (reached != self.positions[:, None, :]).any(-1)
        does_use = (self._usable()[:, None, :] & self.used_by).any(-1)
        return torch.where(self.is_use, does_use, does_move | self.is_wait)

    def step(self, actions: Tensor) -> StepResult:
        reward = self.parameters.reward
        self.positions = moved(
            self.positions, self.moves[actions], self.lengths, self.parameters.boundary
        )
        usable = self._usable() & self.used_by[actions]
        used = usable & (usable.cumsum(1) == 1)
        meters = (self.meters + used.float() @ self.rules.changes).clamp(0.0, 1.0)
        self.meters = self.rules.depleted(meters, self.depletion)
        self.ages = self.ages + 1
        is_dead = (self.meters[:, self.rules.is_fatal] <= 0.0).any(1)
        terminated = is_dead | (used & self.rules.ends).any(1)
        rewards = (
            reward.survival
            + self.meters @ self.rules.levels_worth
            + used.float() @ self.rules.use_rewards
            + is_dead.float() * reward.death
        )
        self.last_used = used
        self.uses += used.sum(0)
        self.visits.index_add_(0, self._cells(), torch.ones_like(self.ages))
        return StepResult(
            self.observe(), rewards, terminated, ~terminated & (self.ages >= self.limits)
        )

    def restart(self, which: Sequence[int]) -> None:
        if not len(which):
            return
        rows = torch.as_tensor(which, device=self.ages.device)
        device, cells = self.ages.device, len(self.visits)
        if self.parameters.is_drawn and self.size:
            self._draw_affordances(rows)
        if self.parameters.start is not None:
            start = torch.tensor(self.parameters.start, device=device)
            self.positions[rows] = start.expand(len(rows), -1)
        else:
            drawn = torch.randint(cells, (len(rows),), generator=self.generator, device=device)
            self.positions[rows] = cells_at(drawn, self.size)
        self.meters[rows] = self.rules.initial.expand(len(rows), -1)
        self.ages[rows] = 0

    def frame(self) -> Frame:
        used = self.last_used[0].nonzero().flatten().tolist()
        return {
            "position": self.positions[0].tolist(),
            "layout": self.layout[0].tolist(),
            "meters": [round(level, 3) for level in self.meters[0].tolist()],
            "used": used[0] if used else None,
        }

    def tallies(self) -> Mapping[str, list[int]]:
        return {"visits": self.visits.tolist(), "uses": self.uses.tolist()}

    def inexact(self) -> str:
        return ""

    def state_dict(self) -> StateDict:
        return {name: getattr(self, name) for name in STATE} | {
            "generator": self.generator.get_state()
        }

    def load_state_dict(self, state: StateDict) -> None:
        for name in STATE:
            own, given = getattr(self, name), state[name]
            if (own.shape, own.dtype) != (given.shape, given.dtype):
                raise ValueError(f"{name} is {tuple(given.shape)}, here {tuple(own.shape)}")
            setattr(self, name, given.to(own.device, copy=True))
        self.generator.set_state(state["generator"])

    def _set_actions(self, device: torch.device) -> None:
        """Lay out the actions as tables: how each moves, and what it may use."""
        names, kinds = self.world.space.actions, self.world.space.affordances
        steps = directions(len(self.size), self.parameters.stride, device)
        self.moves = torch.zeros(len(names), len(self.size), dtype=torch.int64, device=device)
        self.moves[: len(steps)] = steps
        self.used_by = torch.tensor(
            [[name in ("use", f"use {kind}") for kind in kinds] for name in names],
            dtype=torch.bool, device=device,
        ).view(len(names), len(kinds))  # fmt: skip
        self.is_use = torch.tensor([name.startswith("use") for name in names], device=device)
        self.is_wait = torch.tensor([name == "wait" for name in names], device=device)

    def _cells(self) -> Tensor:
        return cell_numbers(self.positions, self.size)

    def _usable(self) -> Tensor:
        """Return what each agent could use where it stands: (environments, K) bool."""
        is_here = (self.layout == self.positions[:, None, :]).all(-1)
        is_open = self.rules.are_open(self.ages % self.parameters.day_steps)
        return is_here & is_open & self.rules.can_pay(self.meters)

    def _draw_affordances(self, rows: Tensor) -> None:
        """Give each affordance without a cell of its own a random one, no two of them the same."""
        free = [n for n, each in enumerate(self.parameters.affordances) if each.position is None]
        device = self.ages.device
        keys = torch.rand(len(rows), len(self.visits), generator=self.generator, device=device)
        for number, each in enumerate(self.parameters.affordances):
            if each.position is not None:
                keys[:, cell_numbers(self.world.layout[number], self.size)] = 2.0
        cells = keys.argsort(dim=1, stable=True)[:, : len(free)]
        columns = torch.tensor(free, device=device)
        self.layout[rows[:, None], columns[None, :]] = cells_at(cells, self.size)


def build(parameters: GridWorldParameters, context: EnvironmentContext) -> GridWorld:
    return GridWorld(parameters, context)
