"""What an agent sees of a grid world."""

from math import pi, prod

import torch
from torch import Tensor

from trainops.kinds.rl.grid.substrate import cell_numbers
from trainops.kinds.rl.recipes.grid_world import GridWorldParameters


def fields_of(world: GridWorldParameters) -> tuple[tuple[str, int], ...]:
    """Return the parts of an observation and their sizes, those of size 0 left out.

    With `vision` an agent sees the cells around it, else its own among all of them, and where
    affordances are, unless they always stand there.
    """
    dimensions, kinds = len(world.size), len(world.affordances)
    if world.vision is None:
        seen = [("cell", prod(world.size) if dimensions else 0)]
        seen += [("offsets", kinds * dimensions if world.is_drawn else 0)]
    else:
        seen = [("window", kinds * (2 * world.vision + 1) ** dimensions if dimensions else 0)]
    found = [
        ("position", dimensions),
        *seen,
        ("here", kinds if dimensions else 0),
        ("meters", len(world.meters)),
        ("time", 3 if world.temporal else 0),
    ]
    return tuple((name, size) for name, size in found if size)


def offsets(positions: Tensor, layout: Tensor, size: Tensor, wraps: bool) -> Tensor:
    """Return the way to each affordance: (environments, K, dimensions) int64."""
    away = layout - positions[:, None, :]
    if wraps:
        half = size // 2
        away = (away + half).remainder(size) - half
    return away


def window(away: Tensor, vision: int) -> Tensor:
    """Return a map of the cells around for each affordance: (environments, K * cells) float32."""
    count, kinds, dimensions = away.shape
    side = 2 * vision + 1
    is_near = (away.abs() <= vision).all(-1)
    index = cell_numbers(away.clamp(-vision, vision) + vision, (side,) * dimensions)
    seen = torch.zeros(count, kinds, side**dimensions, device=away.device)
    seen.scatter_(2, index[..., None], is_near[..., None].float())
    return seen.flatten(1)


def clock(ages: Tensor, limits: Tensor, day_steps: int) -> Tensor:
    """Return the time of day on a circle, and the share of the episode that is over."""
    angle = (ages % day_steps).float() * (2 * pi / day_steps)
    return torch.stack([angle.sin(), angle.cos(), ages.float() / limits.float()], dim=1)
