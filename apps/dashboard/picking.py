"""The recipes that the form of a new operation offers."""

from django.contrib.auth.models import User

from apps.operations.models import Operation
from trainops.kind import KINDS
from trainops.recipes import Recipe, recipes

NUM_RECENT = 4
NUM_LATEST = 50  # operations of a user in which recent recipes are looked for


def recent(user: User) -> list[Recipe]:
    """Return the recipes that a user submitted most recently, the latest first."""
    known = recipes()
    latest = Operation.objects.listed().filter(owner=user).order_by("-created_at", "-id")
    names = dict.fromkeys(latest.values_list("recipe", flat=True)[:NUM_LATEST])
    return [known[name] for name in names if name in known][:NUM_RECENT]


def groups(user: User) -> list[tuple[str, list[tuple[Recipe, str]]]]:
    """Return labels of groups with their recipes and the labels of the kinds of these.

    Recent recipes are the first group; the others are grouped by kind.
    """
    first = recent(user)
    by_kind = [
        (kind.label, [each for each in recipes(name).values() if each not in first])
        for name, kind in KINDS.items()
    ]
    return [
        (label, [(each, KINDS[each.kind].label) for each in found])
        for label, found in [("Recent", first), *by_kind]
        if found
    ]
