"""Clipping to a norm, for values of every magnitude and for non-finite ones.

The contribution of one member to a sum must never exceed the bound, or the noise does not hide it,
also where its squared norm overflows. An example, or a client, with infinite or NaN values must not
end a run, because the failure would reveal its presence. So it adds zeros, as if it were absent.
Such cases are not counted or logged: a count would reveal what the noise hides.

Single examples are clipped many at a time, by squares in their own type. Those for which these are
too large, or none, are *odd*: they are clipped here, in float64. To the last bit the sum of all
others is the same whether or not there are odd ones.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

SLACK = 1e-5  # relative: more than rounding to float32 may lengthen a row by
LIMIT = 1e20  # of squares: below it float32 neither overflows, nor loses what the bounds allow for
AT_ONCE = 16  # odd examples, whose gradients are in memory at a time

Sums = dict[str, Tensor]


def odd_ones(squares: Tensor) -> Tensor | None:
    """Return which rows (N,) have squares (parts, N) that cannot be relied on; None: no row."""
    is_plain = (squares < LIMIT).all(dim=0)  # NaN is not
    return None if bool(is_plain.all()) else ~is_plain


def without(rows: Tensor, odd: Tensor) -> Tensor:
    """Return rows (N, ...) with zeros for those that are odd (N,)."""
    return rows.masked_fill(odd.view(-1, *[1] * (rows.ndim - 1)), 0.0)


def shares_of(squares: Tensor, max_norm: float) -> Tensor:
    """Return by what to multiply rows of these squared norms (N,), none of them odd, so that none
    is longer than `max_norm`."""
    return (max_norm / (squares.sqrt() * (1 + SLACK))).clamp(max=1.0)


def sum_of_odd(
    odd: Tensor, of_each: Callable[[Tensor], Mapping[str, Tensor]], max_norm: float
) -> Sums:
    """Return the sums of the clipped gradients of the examples that are odd (N,), in float64.

    `of_each` gives the gradients (n, ...) by parameter of the examples at some indices (n,).
    """
    sums: Sums = {}
    for some in odd.nonzero().squeeze(1).split(AT_ONCE):
        gradients = of_each(some)
        rows = [each.reshape(len(some), -1).double() for each in gradients.values()]
        total = clipped_rows(torch.cat(rows, dim=1), max_norm).sum(dim=0)
        pieces = total.split([each.shape[1] for each in rows])
        for (name, each), piece in zip(gradients.items(), pieces, strict=True):
            sums[name] = sums.get(name, 0.0) + piece.view(each.shape[1:])
    return sums


def clipped(update: Tensor, max_norm: float) -> Tensor:
    """Return a client's update (P,), shortened to this norm where it is longer.

    Zeros where it is not finite.
    """
    return clipped_rows(update.double().unsqueeze(0), max_norm)[0].to(update)


def clipped_rows(rows: Tensor, max_norm: float) -> Tensor:
    """Return rows (N, P) of float64, shortened to this norm; zeros for those that are not finite.

    Norms are those of rows divided by their largest number, whose squares cannot overflow.
    """
    largest = rows.abs().amax(dim=1, keepdim=True)
    is_finite = torch.isfinite(largest)
    units = rows / torch.where(largest > 0, largest, 1.0)
    norms = torch.linalg.vector_norm(units, dim=1, keepdim=True) * (1 + SLACK)
    shortened = units * (max_norm / norms)
    kept = torch.where(norms * largest <= max_norm, rows, shortened)
    return torch.where(is_finite, kept, 0.0)
