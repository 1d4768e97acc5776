"""Projects: the names they may have, and which users may submit to them."""

from typing import TYPE_CHECKING

from django.contrib.auth.models import User

from apps.operations.errors import NotAllowed
from apps.operations.models import Operation, Share
from trainops.http.roles import Role, has_role
from trainops.runtime.errors import ConfigError
from trainops.text import name_problem

if TYPE_CHECKING:
    from django.db.models import QuerySet

MAX_PROJECT = 64  # characters
NUM_LATEST = 100  # operations


def clean(project: str) -> str:
    """Return the name as it is stored; "": no project. Raises ConfigError."""
    name = project.strip()
    if len(name) > MAX_PROJECT:
        raise ConfigError({"project": f"has {len(name)} characters; at most {MAX_PROJECT}"})
    if problem := name_problem(name):
        raise ConfigError({"project": problem})
    return name


def require_member(project: str, user: User | None) -> None:
    """Raise NotAllowed if the project has members and this user is none of them, nor an admin."""
    if not project or user is None or has_role(user, Role.ADMIN):
        return
    members = _members(project)
    if members.exists() and not members.filter(pk=user.pk).exists():
        message = (
            f"{user.get_username()} is not a member of the project {project!r}; its members and "
            "admins submit operations to it. Choose another project, or none."
        )
        raise NotAllowed("NOT_A_MEMBER", message, project=project, fields={"project": message})


def suggestions(user: User) -> list[str]:
    """Return projects that a user may submit to: those with a share, and the latest in use."""
    shares = Share.objects.exclude(project="").prefetch_related("members").order_by()
    by_name = {each.project: {member.pk for member in each.members.all()} for each in shares}
    latest = Operation.objects.order_by("-created_at", "-id")[:NUM_LATEST]
    names = by_name.keys() | set(latest.values_list("project", flat=True)) - {""}
    if not has_role(user, Role.ADMIN):
        names = {each for each in names if user.pk in (by_name.get(each) or {user.pk})}
    return sorted(names)


def _members(project: str) -> "QuerySet[User]":
    return User.objects.filter(project_shares__in=Share.objects.filter(project=project))
