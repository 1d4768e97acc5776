"""What packages register with trainops under a group of entry points."""

import tomllib
from importlib.metadata import EntryPoint, entry_points

from trainops.paths import CLONE

OURS = "trainops"


def registered(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, trainops' own first.

    In a clone its own are those of pyproject.toml: a clone need not be installed, and what an
    earlier installation of it says may be out of date.
    """
    found = entry_points(group=group)
    if CLONE is None:
        return sorted(found, key=lambda point: not _is_ours(point))
    table = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    own = table.get("entry-points", {}).get(group, {})
    return [
        *(EntryPoint(name, value, group) for name, value in own.items()),
        *(point for point in found if not _is_ours(point)),
    ]


def _is_ours(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == OURS
