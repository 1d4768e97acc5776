"""Generated scans: a body, organs in it, one of which is to be outlined.

Ellipses of different absorption, after Shepp and Logan (1974), each scan with places, sizes and
angles of its own. A function of the arguments.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Phantoms:
    """images (N, size, size), masks (N, size, size) of 0 and 1, and the site (N,) of each."""

    images: Floats
    masks: Floats
    sites: NDArray[np.int64]


def make_phantoms(count: int, size: int, *, noise: float, sites: int, seed: int) -> Phantoms:
    """Return phantoms whose brightness and contrast are those of the site they come from."""
    drawing = np.random.Generator(np.random.PCG64(seed))
    where = np.linspace(-1, 1, size)
    x, y = np.meshgrid(where, where)
    gains, offsets = drawing.uniform(0.7, 1.3, sites), drawing.uniform(-0.2, 0.2, sites)
    images, masks = np.zeros((count, size, size)), np.zeros((count, size, size))
    site = np.arange(count) % sites
    for number in range(count):
        body = _ellipse(x, y, drawing, reach=0.08, least=0.75, most=0.9)
        image = 0.4 * body
        for _ in range(3):
            image += (
                drawing.uniform(-0.15, 0.2)
                * body
                * _ellipse(x, y, drawing, reach=0.5, least=0.08, most=0.2)
            )
        organ = body * _ellipse(x, y, drawing, reach=0.35, least=0.18, most=0.38)
        image += 0.35 * organ
        image = gains[site[number]] * image + offsets[site[number]]
        images[number] = image + noise * drawing.standard_normal((size, size))
        masks[number] = organ
    return Phantoms(images, masks, site)


def _ellipse(
    x: Floats, y: Floats, drawing: np.random.Generator, *, reach: float, least: float, most: float
) -> Floats:
    """Return 1 inside of an ellipse: centre within `reach`, half axes from `least` to `most`."""
    centre, axes = drawing.uniform(-reach, reach, 2), drawing.uniform(least, most, 2)
    angle = drawing.uniform(0, np.pi)
    across = (x - centre[0]) * np.cos(angle) + (y - centre[1]) * np.sin(angle)
    along = (y - centre[1]) * np.cos(angle) - (x - centre[0]) * np.sin(angle)
    inside: Floats = ((across / axes[0]) ** 2 + (along / axes[1]) ** 2 <= 1).astype(np.float64)
    return inside
