"""What values are learned from: pure functions, each of one formula."""

from typing import NamedTuple

import torch
from torch import Tensor

NEVER = -1e9  # the logit or value of an action that is masked out


class Horizon(NamedTuple):
    """n rewards from a step on, and where they lead."""

    returns: Tensor  # (batch,): discounted sum of the rewards
    last: Tensor  # (batch,) int64: the number of the last step counted, from 0
    discounts: Tensor  # (batch,): of what follows; 0 after a terminal step


def n_step(rewards: Tensor, terminated: Tensor, ended: Tensor, discount: float) -> Horizon:
    """Return the n-step returns of (batch, n) steps, cut after the first that ended an episode.

    After a termination nothing follows; after a truncation the value of the last observation
    does (Sutton and Barto, 2nd edition, 7.1; Pardo et al. 2018).
    """
    steps = rewards.shape[1]
    before = torch.cumsum(ended[:, :-1].long(), dim=1)  # episodes that ended earlier
    counts = torch.ones_like(rewards)
    counts[:, 1:] = (before == 0).float()
    factors = discount ** torch.arange(steps, device=rewards.device, dtype=rewards.dtype)
    length = counts.sum(1).long()
    last = length - 1
    is_over = terminated.gather(1, last[:, None]).squeeze(1)
    discounts = torch.pow(
        torch.full_like(rewards[:, 0], discount), length.to(rewards.dtype)
    ) * (~is_over).to(rewards.dtype)  # fmt: skip
    return Horizon((rewards * counts * factors).sum(1), last, discounts)


def one_step(rewards: Tensor, terminated: Tensor, discount: float) -> Horizon:
    """Return what n_step does for one step, from tensors of (batch,)."""
    discounts = discount * (~terminated).to(rewards.dtype)
    return Horizon(rewards, torch.zeros_like(terminated, dtype=torch.int64), discounts)


def q_target(
    returns: Tensor,
    discounts: Tensor,
    target_values: Tensor,
    online_values: Tensor | None = None,
    masks: Tensor | None = None,
) -> Tensor:
    """Return returns + discounts * Q_target(s', a*), over any leading dimensions.

    a* is the best action by the target's values, or, where `online_values` are given, by those
    of the learning network (van Hasselt et al. 2016, equation 4); masked actions never are.
    """
    if online_values is None and masks is None:
        return returns + discounts * target_values.amax(-1)
    chooser = target_values if online_values is None else online_values
    if masks is not None:
        chooser = chooser.masked_fill(~masks, NEVER)
    best = chooser.argmax(-1, keepdim=True)
    return returns + discounts * target_values.gather(-1, best).squeeze(-1)


def advantages(
    rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, ended: Tensor,
    *, discount: float, gae_lambda: float,
) -> Tensor:  # fmt: skip
    """Return generalised advantages of (steps, agents), the newest step last.

    next_values are of the observation that each step led to, also where it ended an episode
    (Schulman et al. 2016, equation 16).
    """
    deltas = rewards + discount * next_values * (~terminated).float() - values
    goes_on = discount * gae_lambda * (~ended).float()
    found, later = torch.empty_like(deltas), torch.zeros_like(deltas[0])
    for step in range(len(deltas) - 1, -1, -1):
        later = deltas[step] + goes_on[step] * later
        found[step] = later
    return found


def importance(probabilities: Tensor, size: int, beta: float) -> Tensor:
    """Return weights that correct for drawing by priority, at most 1 (Schaul et al. 2016, 3.4)."""
    weights = (size * probabilities) ** -beta
    return weights / weights.max()
