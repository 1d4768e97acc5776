"""The points that a child reports, without those of its speed, which no resume reproduces."""

from trainops.media.names import SYSTEM


def reproduced(points):
    """Return (step, values by name) of each."""
    return [
        (step, values)
        for step, _, values in points
        if not all(name.startswith(SYSTEM) for name in values)
    ]
