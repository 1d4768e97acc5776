"""Projects: the names they may have, and which users may submit to them."""

from django.contrib.auth.models import User

from apps.operations.errors import NotAllowed
from apps.operations.models import Operation, Share
from trainops.http.roles import Role, has_role
from trainops.runtime.errors import ConfigError
from trainops.text import name_problem

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
    """Raise NotAllowed if a project is for members only, and this user is neither one nor an admin.

    Without a user, the platform itself asks.
    """
    if not project or user is None or has_role(user, Role.ADMIN):
        return
    for_members = Share.objects.filter(project=project, members_only=True).first()
    if for_members is not None and not for_members.members.filter(pk=user.pk).exists():
        message = (
            f"{user.get_username()} is not a member of the project {project!r}; its members and "
            "admins submit operations to it. Choose another project, or none."
        )
        raise NotAllowed("NOT_A_MEMBER", message, project=project, fields={"project": message})


def suggestions(user: User) -> list[str]:
    """Return projects that a user may submit to: those with a share, and the latest in use."""
    shares = Share.objects.exclude(project="").order_by()
    latest = Operation.objects.order_by("-created_at", "-id")[:NUM_LATEST]
    names = {each.project for each in shares} | set(latest.values_list("project", flat=True))
    if not has_role(user, Role.ADMIN):
        of_others = shares.filter(members_only=True).exclude(members=user)
        names -= {each.project for each in of_others}
    return sorted(names - {""})
