"""The three roles, as Django groups: viewer reads, operator also creates, admin does everything."""

from collections.abc import Iterable
from enum import StrEnum

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group


class Role(StrEnum):
    """What a person may do; a later one includes all earlier ones."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def includes(self, other: "Role") -> bool:
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}


def ensure_roles() -> None:
    """Make the groups that are missing; safe to call at any time, any number of times."""
    for role in Role:
        Group.objects.get_or_create(name=role.value)


def role_of(user: AbstractBaseUser | AnonymousUser) -> Role | None:
    """The highest role of `user`; superusers are admins, None for strangers and the inactive.

    The answer is remembered on the user object: one query a request.
    """
    if not user.is_active:
        return None
    if getattr(user, "is_superuser", False):
        return Role.ADMIN
    remembered = vars(user)
    if "_trainops_role" not in remembered:
        remembered["_trainops_role"] = _highest(user)
    role: Role | None = remembered["_trainops_role"]
    return role


def remember_role(user: AbstractBaseUser, role: Role | None) -> None:
    """Have `role_of` answer with this role, whatever groups the user has."""
    vars(user)["_trainops_role"] = role


def has_role(user: AbstractBaseUser | AnonymousUser, needed: Role) -> bool:
    role = role_of(user)
    return role is not None and role.includes(needed)


def _highest(user: AbstractBaseUser | AnonymousUser) -> Role | None:
    groups = getattr(user, "groups", Group.objects.none())
    return role_among(groups.values_list("name", flat=True))


def role_among(groups: Iterable[str]) -> Role | None:
    """Return the highest role among names of groups; other groups are no roles."""
    found = [Role(name) for name in groups if name in list(Role)]
    return max(found, key=lambda role: role.rank, default=None)
