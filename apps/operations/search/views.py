"""Save views of the list, and find those that a user sees."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from django.db.models import Q, QuerySet

from apps.operations.errors import Forbidden
from apps.operations.models import SavedView
from apps.operations.requests.access import Person
from apps.operations.search.columns import FORM as COLUMNS_FORM
from apps.operations.search.columns import MAX_COLUMNS, is_column
from apps.operations.search.conditions import ME, condition
from apps.operations.search.groups import require_groupable
from apps.operations.search.language import MAX_LENGTH, QueryError, with_value
from apps.operations.search.sorting import FORM, is_sort
from trainops.errors import DomainError
from trainops.http.roles import Role, has_role
from trainops.http.users import former_username
from trainops.runtime.errors import ConfigError
from trainops.text import name_problem

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_NAME, MAX_VIEWS = 80, 100


class ViewNotFound(DomainError):
    def __init__(self, view_id: int) -> None:
        super().__init__("VIEW_NOT_FOUND", f"There is no view {view_id} of yours.", status=404)


def visible(user: Person) -> QuerySet[SavedView]:
    """Return the views of `user`, and those that admins share."""
    return SavedView.objects.filter(Q(owner_id=user.pk) | Q(is_shared=True)).select_related("owner")


def save(
    *,
    owner: "User",
    name: str,
    query: str = "",
    columns: Sequence[str] = (),
    sort: str = "",
    group_by: str = "",
    is_shared: bool = False,
) -> SavedView:
    """Store a view; one of the same name and owner is replaced.

    Raises:
        ConfigError, QueryError, GroupingError: a value is not allowed.
        Forbidden: only admins share views.
    """
    name = name.strip()
    if is_shared and not has_role(owner, Role.ADMIN):
        raise Forbidden("Only admins share views. Save it without sharing.")
    if problems := _problems(owner, name, columns, sort):
        raise ConfigError(problems)
    condition(query, owner)
    if group_by:
        require_groupable(group_by)
    fields = {
        "query": query, "columns": list(columns), "sort": sort, "group_by": group_by,
        "is_shared": is_shared,
    }  # fmt: skip
    view, _ = SavedView.objects.update_or_create(owner=owner, name=name, defaults=fields)
    return view


def delete(*, view_id: int, actor: "User") -> str:
    """Delete a view of `actor`, or for admins a shared one. Raises ViewNotFound."""
    mine = Q(owner=actor)
    if has_role(actor, Role.ADMIN):
        mine |= Q(is_shared=True)
    view = SavedView.objects.filter(mine, pk=view_id).first()
    if view is None:
        raise ViewNotFound(view_id)
    view.delete()
    return view.name


def user_saved(instance: "User", update_fields: Collection[str] | None, **_: object) -> None:
    """Receiver of `pre_save`: views of the operations of a user follow a new username."""
    former = former_username(instance, update_fields)
    if former in ("", ME):
        return
    views = SavedView.objects.filter(query__icontains="owner:").filter(query__contains=former)
    for view in views:
        try:
            query = with_value(view.query, "owner", former, instance.username)
        except QueryError:  # of another version
            continue
        if query != view.query and len(query) <= MAX_LENGTH:
            SavedView.objects.filter(pk=view.pk, query=view.query).update(query=query)


def _problems(owner: "User", name: str, columns: Sequence[str], sort: str) -> dict[str, str]:
    problems = {}
    if not 0 < len(name) <= MAX_NAME:
        problems["name"] = f"got {len(name)} characters; allowed: 1 to {MAX_NAME}"
    elif problem := name_problem(name):
        problems["name"] = problem
    elif _is_one_too_many(owner, name):
        problems["name"] = f"got view {MAX_VIEWS + 1}; allowed: {MAX_VIEWS}. Delete one first"
    if wrong := [each for each in columns if not is_column(each)]:
        problems["columns"] = f"got {wrong[0][:60]!r}; allowed: {COLUMNS_FORM}"
    elif len(columns) > MAX_COLUMNS:
        problems["columns"] = f"got {len(columns)} columns; allowed: up to {MAX_COLUMNS}"
    if sort and not is_sort(sort):
        problems["sort"] = f"got {sort[:60]!r}; allowed: {FORM}"
    return problems


def _is_one_too_many(owner: "User", name: str) -> bool:
    others = SavedView.objects.filter(owner=owner).exclude(name=name)
    return others.count() >= MAX_VIEWS
