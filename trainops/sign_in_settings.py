"""Settings of sign-ins, read once at the start: who must have a second factor."""

import os
from collections.abc import Mapping
from enum import StrEnum

SECOND_FACTOR = "TRAINOPS_SECOND_FACTOR"


class Requirement(StrEnum):
    """Who cannot sign in with a password alone."""

    OPTIONAL = "optional"  # only who has set up a second factor
    ADMINS = "admins"  # also superusers, and all others with the role admin
    ALL = "all"


def second_factor(environment: Mapping[str, str] = os.environ) -> Requirement:
    """Return who must have a second factor. Raises ValueError."""
    given = environment.get(SECOND_FACTOR, "").strip() or Requirement.OPTIONAL
    try:
        return Requirement(given)
    except ValueError:
        allowed = ", ".join(Requirement)
        raise ValueError(f"{SECOND_FACTOR}: got {given!r}; allowed: {allowed}") from None
