"""Work through rows of which one that fails must not stop the others."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

logger = logging.getLogger(__name__)
Each = TypeVar("Each")
Result = TypeVar("Result")


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
