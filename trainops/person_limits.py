"""How much one person may have of everything that is stored: thresholds of the installation."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from trainops.errors import DomainError


class LimitReached(DomainError):
    """One person has as much of something as one may have; nothing has changed."""

    def __init__(self, what: str, limit: str, *, allowed: int, current: int, more: int) -> None:
        variable = f"TRAINOPS_{limit.upper()}"
        super().__init__(
            "LIMIT_REACHED",
            f"Too many {what} of a user: got {current:,} and {more:,} more; allowed: {allowed:,}. "
            f"Delete some, or wait until some have ended. An admin sets the limit: {variable}.",
            {"limit": variable, "allowed": allowed, "current": current, "requested": more},
            status=409,
        )


def require(what: str, limit: str, *, current: int, more: int) -> None:
    """Raise LimitReached where `current + more` is above the threshold `limit`, unless it is 0.

    Outside `one_at_a_time`, requests that arrive at the same moment may each add theirs.
    """
    allowed: int = getattr(settings.THRESHOLDS, limit)
    if allowed and current + more > allowed:
        raise LimitReached(what, limit, allowed=allowed, current=current, more=more)


@contextmanager
def one_at_a_time(user_id: int) -> Iterator[None]:
    """Have others that count what this person has wait until the block has added to it."""
    with transaction.atomic():
        rows = User.objects.filter(pk=user_id).order_by()
        list(rows.select_for_update(no_key=True).values_list("pk"))
        yield


def granted(limit: str, *, current: int, more: int) -> int:
    """Return how many of `more` the threshold `limit` allows; all if it is 0."""
    allowed: int = getattr(settings.THRESHOLDS, limit)
    return min(more, max(0, allowed - current)) if allowed else more
