"""Exponential backoff: the pause before a retry."""

import random

MAX_DOUBLINGS = 30  # 2 ** 30 seconds are 34 years


def seconds(num_failures: int, *, first: float, longest: float, jitter: float = 0.0) -> float:
    """Return the seconds to wait after this many failures in a row: doubling up to `longest`.

    jitter: the share that is drawn at random on both sides, so that many processes that failed
    together do not retry together.
    """
    pause = min(first * 2.0 ** min(max(num_failures, 1) - 1, MAX_DOUBLINGS), longest)
    return pause * random.uniform(1.0 - jitter, 1.0 + jitter)  # noqa: S311 - no secret
