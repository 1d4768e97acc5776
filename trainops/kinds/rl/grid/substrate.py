"""Moving through a space of 0 to 3 dimensions, and what its edges do."""

import torch
from torch import Tensor


def directions(dimensions: int, stride: int, device: torch.device) -> Tensor:
    """Return the moves there are: (2 * dimensions, dimensions) int64, first axis back and forth."""
    moves = torch.zeros(2 * dimensions, dimensions, dtype=torch.int64, device=device)
    for axis in range(dimensions):
        moves[2 * axis, axis], moves[2 * axis + 1, axis] = -stride, stride
    return moves


def moved(positions: Tensor, moves: Tensor, size: Tensor, boundary: str) -> Tensor:
    """Return where moves lead; all int64 with the dimensions last, `size` the cells of each.

    clamp stops at the edge, wrap enters at the other one, bounce is reflected, and sticky stays
    where it was.
    """
    target = positions + moves
    if boundary == "wrap":
        return target.remainder(size)
    last = size - 1
    if boundary == "clamp":
        return torch.minimum(target.clamp(min=0), last)
    if boundary == "sticky":
        is_inside = ((target >= 0) & (target <= last)).all(-1, keepdim=True)
        return torch.where(is_inside, target, positions)
    period = (2 * last).clamp(min=1)
    folded = target.remainder(period)
    return torch.minimum(folded, period - folded).clamp(min=0) * (last > 0)


def cell_numbers(positions: Tensor, size: tuple[int, ...]) -> Tensor:
    """Return the number of each cell, the last dimension running fastest."""
    numbers = torch.zeros(positions.shape[:-1], dtype=torch.int64, device=positions.device)
    for axis, length in enumerate(size):
        numbers = numbers * length + positions[..., axis]
    return numbers


def cells_at(numbers: Tensor, size: tuple[int, ...]) -> Tensor:
    """Return the position of each cell: the other way round."""
    axes = []
    for length in reversed(size):
        axes.append(numbers % length)
        numbers = numbers // length
    if not axes:
        return torch.zeros(*numbers.shape, 0, dtype=torch.int64, device=numbers.device)
    return torch.stack(axes[::-1], dim=-1)
