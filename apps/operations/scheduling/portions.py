"""Work through many rows in portions: neither their number nor one bad row stops a sweep."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from django.db import InterfaceError, OperationalError

logger = logging.getLogger(__name__)
SIZE = 100  # rows of each kind that one sweep looks at
Each = TypeVar("Each")
Result = TypeVar("Result")


class Portions:
    """Takes the next keys in their order at each call, and begins again after the last one.

    Rows that stay where they are, such as studies that still run, would otherwise be the same first
    ones each time, and those behind them would never be looked at.
    """

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self._after = ""

    def next(self, keys: Iterable[str]) -> Sequence[str]:
        """Return at most `size` of the keys, those after the last call's first."""
        in_order = sorted(keys)
        later = [key for key in in_order if key > self._after]
        earlier = in_order[: len(in_order) - len(later)]
        portion = (later + earlier)[: self.size]
        self._after = portion[-1] if portion else ""
        return portion


def for_each(rows: Iterable[Each], work: Callable[[Each], Result], what: str) -> list[Result]:
    """Call `work` with each, log what goes wrong, and return the results of the others.

    Raises what says that the database is away.
    """
    results = []
    for each in rows:
        try:
            results.append(work(each))
        except (OperationalError, InterfaceError):
            raise
        except Exception:  # one that cannot be worked on must not keep all others from it
            logger.exception("%s: %s", what, getattr(each, "pk", each))
    return results
