"""A grid world's affordances and meters as tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainops.kinds.rl.recipes.grid_world import GridWorldParameters


@dataclass(frozen=True, slots=True)
class Rules:
    """K affordances, M meters, C cascades; float32 but for what is said otherwise."""

    costs: Tensor  # (K, M)
    changes: Tensor  # (K, M): effects less costs
    hours: Tensor  # (K, 2) int64; both 0 where it is always open
    use_rewards: Tensor  # (K,)
    ends: Tensor  # (K,) bool
    initial: Tensor  # (M,)
    depletion: Tensor  # (M,)
    is_fatal: Tensor  # (M,) bool
    levels_worth: Tensor  # (M,)
    low: Tensor  # (C,) int64: meters that run low
    below: Tensor  # (C,)
    drains: Tensor  # (C, M): how much of which meter

    def are_open(self, hour: Tensor) -> Tensor:
        """Return which affordances are open at these hours: (environments, K) bool."""
        opens, closes = self.hours.unbind(1)
        now = hour[:, None]
        by_day = (now >= opens) & (now < closes)
        over_night = (now >= opens) | (now < closes)
        return torch.where(opens < closes, by_day, over_night)

    def can_pay(self, meters: Tensor) -> Tensor:
        return (meters[:, None, :] >= self.costs).all(-1)

    def depleted(self, meters: Tensor, factor: Tensor) -> Tensor:
        """Return the meters after a step; what runs low drains others in proportion."""
        lost = self.depletion * factor[:, None]
        if len(self.low):
            want = ((self.below - meters[:, self.low]) / self.below).clamp(min=0.0)
            lost = lost + want @ self.drains * factor[:, None]
        return (meters - lost).clamp(0.0, 1.0)


def rules_of(world: GridWorldParameters, device: torch.device) -> Rules:
    names = [meter.name for meter in world.meters]
    kinds, meters, cascades = world.affordances, world.meters, world.cascades

    def floats(rows: list[float]) -> Tensor:
        return torch.tensor(rows, dtype=torch.float32, device=device)

    def by_meter(rows: list[dict[str, float]]) -> Tensor:
        table = [[row.get(name, 0.0) for name in names] for row in rows]
        return torch.tensor(table, dtype=torch.float32, device=device).view(len(rows), len(names))

    costs = by_meter([each.costs for each in kinds])
    return Rules(
        costs=costs,
        changes=by_meter([each.effects for each in kinds]) - costs,
        hours=torch.tensor(
            [each.hours or [0, 0] for each in kinds], dtype=torch.int64, device=device
        ).view(len(kinds), 2),
        use_rewards=floats([each.reward for each in kinds]),
        ends=torch.tensor([each.ends for each in kinds], dtype=torch.bool, device=device),
        initial=floats([each.initial for each in meters]),
        depletion=floats([each.depletion for each in meters]),
        is_fatal=torch.tensor([m.is_fatal for m in meters], dtype=torch.bool, device=device),
        levels_worth=floats([world.reward.meters.get(name, 0.0) for name in names]),
        low=torch.tensor(
            [names.index(c.low) for c in cascades], dtype=torch.int64, device=device
        ),
        below=floats([each.below for each in cascades]),
        drains=by_meter([{each.drains: each.by} for each in cascades]),
    )  # fmt: skip
