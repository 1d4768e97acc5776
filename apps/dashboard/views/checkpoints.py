"""The checkpoints of all operations: filtered, sorted, deleted; what a cleanup would delete."""

from collections.abc import Mapping

from django.conf import settings
from django.db.models import F, OrderBy, Sum
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.checkpoints import cleaning
from apps.checkpoints.criteria import wanted
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.serializers import CheckpointQuery, described, rows_of
from apps.checkpoints.services import Freed
from apps.checkpoints.signatures import SignatureChecks
from apps.dashboard import chosen_checkpoints, pages, parts
from apps.dashboard.formatting import plural, size
from apps.dashboard.permissions import is_fetch, needs, user_of
from apps.dashboard.responses import safe, say
from apps.operations.lifecycle import ACTIVE
from apps.operations.requests import access, deletion
from trainops.errors import DomainError
from trainops.http.roles import Role, has_role
from trainops.kind import KINDS

PAGE_SIZE = 50
MAX_SHOWN = 50  # of those that a cleanup would delete
FILTERS = ("operation", "kind", "type", "health", "finished", "pinned", "older_than_days")
COLUMNS = ("operation__name", "operation__state", "operation__owner_id")
SORTS: Mapping[str, tuple[str, OrderBy]] = {
    "oldest": ("Oldest first", F("created_at").asc()),
    "largest": ("Largest first", F("artifacts_size_bytes").desc()),
    "smallest": ("Smallest first", F("artifacts_size_bytes").asc()),
    "operation": ("By operation", F("operation__name").asc()),
}


@needs()
def listed(request: HttpRequest) -> HttpResponse:
    """List checkpoints, latest first or in another order."""
    asked = _asked(request.GET)
    query = CheckpointQuery(data=asked)
    query.is_valid(raise_exception=True)
    found = Checkpoint.objects.filter(wanted(query.validated_data))
    rows, sort = rows_of(found, *COLUMNS), request.GET.get("sort", "")
    cursor, checks = request.GET.get("cursor", ""), SignatureChecks()
    if sort in SORTS:
        by = [SORTS[sort][1], F("pk").asc()]
        page = pages.fetch_sorted(rows, cursor, PAGE_SIZE, by, pages.sliced)
    else:
        page = pages.fetch(rows, cursor, PAGE_SIZE)
    context = {
        "page": page,
        "rows": [_row(row, request, checks) for row in page.rows],
        "asked": asked,
        "sort": sort,
        "query": _query(asked, sort),
        "sorts": [(name, label) for name, (label, _) in SORTS.items()],
        "kinds": [(each.name, each.label) for each in KINDS.values()],
        "types": Checkpoint.Type.values,
        "healths": Checkpoint.Health.values,
        "colours": parts.CHECKPOINT_COLOURS,
        "num_found": found.count(),
        "found_bytes": found.aggregate(total=Sum("counted_size_bytes"))["total"] or 0,
        "max_age_days": settings.THRESHOLDS.checkpoint_max_age_days,
        "may_clean_up": has_role(request.user, Role.ADMIN),
        "may_create": access.may_create(request.user),
    }
    return render(request, "dashboard/checkpoints/list.html", context)


def _asked(given: QueryDict) -> dict[str, str]:
    """Return the filters of an address that are understood; others are left out."""
    asked = {name: str(given[name]) for name in FILTERS if given.get(name)}
    query = CheckpointQuery(data=asked)
    if query.is_valid():
        return asked
    return {name: value for name, value in asked.items() if name not in query.errors}


def _query(asked: Mapping[str, str], sort: str) -> str:
    query = QueryDict(mutable=True)
    query.update(asked)
    if sort in SORTS:
        query["sort"] = sort
    return query.urlencode()


def _row(
    row: dict[str, object], request: HttpRequest, checks: SignatureChecks
) -> dict[str, object]:
    owner_id = row["operation__owner_id"]
    is_mine = access.may_change(owner_id if isinstance(owner_id, int) else None, request.user)
    shown = described(row, checks)
    return row | {
        "place": shown["place"],
        "signature": shown["signature"],
        "signed_by": shown["signed_by"],
        "operation_name": row["operation__name"],
        "operation_state": row["operation__state"],
        "unit": row["operation__unit"],
        "is_mine": is_mine,
        "is_deletable": is_mine and row["operation__state"] not in ACTIVE,
    }


@needs(Role.OPERATOR)
def confirm(request: HttpRequest) -> HttpResponse:
    """What deleting the checkpoints `id` would do."""
    choice = chosen_checkpoints.of(request.GET.getlist("id"), request.user)
    to = safe(request, request.GET.get("next") or "/checkpoints/")
    template = "chosen_part" if is_fetch(request) else "chosen_page"
    context = {"choice": choice, "next": to}
    return render(request, f"dashboard/checkpoints/{template}.html", context)


@require_POST
@needs(Role.OPERATOR)
def delete(request: HttpRequest) -> HttpResponse:
    """Delete the checkpoints `id`; what is not allowed is reported, the rest is done."""
    to = request.POST.get("next") or "/checkpoints/"
    ids = request.POST.getlist("id")[: chosen_checkpoints.MAX_CHECKPOINTS]
    freed, refused = Freed(), []
    for each in Checkpoint.objects.filter(pk__in=ids).select_related("operation__owner"):
        try:
            access.require(each.operation, request.user, "delete checkpoints of")
            done = deletion.delete_checkpoints(
                operation_id=each.operation_id, actor=user_of(request), checkpoint_id=each.pk
            )
        except DomainError as refusal:
            refused.append(f"{each.operation.name}: {refusal.message}")
        else:
            freed += done.freed
    if not freed.num_checkpoints:
        why = refused or ["These checkpoints no longer exist."]
        return say(request, why[0], level="error", details=why[1:], to=to, status=409)
    message = (
        f"Deleted {plural(freed.num_checkpoints, 'checkpoint')}. Freed {size(freed.freed_bytes)}."
    )
    level = "warning" if refused else "success"
    return say(request, message, level=level, details=refused, to=to)


@needs(Role.ADMIN)
def cleanup(request: HttpRequest) -> HttpResponse:
    """Show what a cleanup would delete; by POST, delete it."""
    is_dry = request.method != "POST"
    actor = user_of(request).get_username()
    try:
        freed = cleaning.clean_up(actor=actor, dry_run=is_dry)
    except OSError as error:
        message = f"The storage is unavailable: {error}. Nothing further was deleted."
        return say(request, message, level="error", to="/checkpoints/", status=503)
    if not is_dry:
        return say(request, f"Deleted {_counted(freed)}.", to="/checkpoints/")
    rows = rows_of(cleaning.expired().order_by("created_at"), *COLUMNS)[: MAX_SHOWN + 1]
    context = {
        "freed": freed,
        "said": _counted(freed),
        "rows": [_row(row, request, SignatureChecks()) for row in rows[:MAX_SHOWN]],
        "has_more": len(rows) > MAX_SHOWN,
        "colours": parts.CHECKPOINT_COLOURS,
        "max_age_days": settings.THRESHOLDS.checkpoint_max_age_days,
        "trash_days": settings.THRESHOLDS.trash_days,
    }
    return render(request, "dashboard/checkpoints/cleanup.html", context)


def _counted(freed: Freed) -> str:
    one = plural(freed.num_checkpoints, "checkpoint")
    plain = f"{freed.num_unowned:,} " + ("directory" if freed.num_unowned == 1 else "directories")
    return f"{one} and {plain} without a database row: {size(freed.freed_bytes)}"
