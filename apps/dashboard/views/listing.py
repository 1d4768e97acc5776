"""The list of operations, and what keeps it live."""

from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from apps.dashboard import filters, grouping, menu, pages, rows
from apps.dashboard.filters import TABS, Filters
from apps.dashboard.live import follow, list_reader
from apps.dashboard.permissions import needs
from apps.operations import attention, versions
from apps.operations.comparisons.selection import MAX_OPERATIONS
from apps.operations.models import Operation, SavedView
from apps.operations.requests import access
from apps.operations.requests.access import Person
from apps.operations.search import columns as list_columns
from apps.operations.search import views
from apps.operations.search.completion import column_completions, completions
from apps.operations.search.language import MAX_LENGTH, unquoted
from apps.operations.search.sorting import ordering
from trainops.kind import KINDS

PAGE_SIZE = 50
GROUP_SIZE = 20  # rows of a group that is opened
MAX_NEW = 100  # counted no further


@needs()
def operations(request: HttpRequest) -> HttpResponse:
    wanted = Filters.read(request.GET, request.user)
    cursor = request.GET.get("cursor", "")
    if wanted.group:
        return _grouped(request, wanted, cursor)
    found, read = (
        wanted.apply(request.user),
        rows.read(wanted.columns, is_scan=bool(wanted.query or wanted.tab), sort=wanted.sort),
    )
    if wanted.sort:
        newest = None if cursor else pages.newest_of(found)  # before the rows: later ones are new
        page = pages.fetch_sorted(found, cursor, PAGE_SIZE, ordering(wanted.sort), read)
        page = replace(page, newest=newest)
    else:
        page = pages.fetch_read(found, cursor, PAGE_SIZE, read)
    if page.is_whole and not wanted.tab:
        filters.remember(wanted, request.user, filters.counted_in(page.rows))
    context = {
        **_context(request, wanted),
        "page": page,
        "lines": rows.lines(page.rows, request.user, wanted.columns, wanted.removed),
        "headings": _headings(wanted),
    }
    return render(request, "dashboard/operations/list.html", context)


def _grouped(request: HttpRequest, wanted: Filters, cursor: str) -> HttpResponse:
    context = {**_context(request, wanted), "page": grouping.page(wanted, request.user, cursor)}
    return render(request, "dashboard/operations/list.html", context)


def _context(request: HttpRequest, wanted: Filters) -> dict[str, Any]:
    """Return what the list and its groups have in common."""
    counts = filters.counts(wanted, request.user)
    return {
        "filters": wanted,
        "tabs": _tabs(wanted, counts),
        "summary": _summary(wanted, counts),
        "total": counts[wanted.tab],
        "reasons": _reasons(wanted, request.user),
        "views": [(view.name, _url(view)) for view in views.visible(request.user)],
        "kinds": [(name, engine.label) for name, engine in KINDS.items()],
        "may_create": access.may_create(request.user),
        "max_compared": MAX_OPERATIONS,
        "groupings": grouping.OFFERED,
    }


@needs()
def group(request: HttpRequest) -> HttpResponse:
    """Return the newest rows of a group, or the first of the chosen order."""
    wanted = Filters.read(request.GET, request.user)
    by = ordering(wanted.sort) if wanted.sort else ("-created_at", "-pk")
    read = rows.read(wanted.columns, sort=wanted.sort)
    shown = list(read(wanted.apply(request.user), by, 0, GROUP_SIZE + 1))
    context = {
        "lines": rows.lines(shown[:GROUP_SIZE], request.user, wanted.columns, wanted.removed),
        "headings": _headings(wanted),
        "filters": wanted,
        "has_more": len(shown) > GROUP_SIZE,
        "is_part": True,
    }
    return render(request, "dashboard/operations/group.html", context)


def _url(view: SavedView) -> str:
    columns, removed = list_columns.split(view.columns)
    shown = Filters(
        query=view.query, sort=view.sort, columns=columns, removed=removed, group=view.group_by
    )
    return "/?" + shown.url()


@needs()
def live(request: HttpRequest) -> JsonResponse:
    """Return the visible rows that changed, and how many new ones wait.

    `rows` is id:digest of each visible row; `top` is the cursor of the newest (first page only).
    """
    reader = list_reader(request.user)
    wanted = Filters.read(request.GET, reader)
    seen = dict(_pairs(request.GET.get("rows", "")))
    mine = Operation.objects.filter(pk__in=list(seen)[:PAGE_SIZE])
    found = list(rows.select(mine, wanted.columns))
    shown = rows.lines(found, reader, wanted.columns, wanted.removed)
    digests = {line.id: line.digest for line in shown}
    changed = {
        line.id: {"html": line.html, "digest": line.digest}
        for line in shown
        if line.digest != seen[line.id]
    }
    counts = filters.counts(wanted, reader)
    following = request.GET.copy()
    following["rows"] = ",".join(f"{pk}:{digests[pk]}" for pk in seen if pk in digests)
    follow(request, versions.OPERATIONS, reader, following.urlencode())
    return JsonResponse(
        {
            "rows": changed,
            "gone": [row for row in seen if row not in digests],
            "new": _num_new(wanted, reader, request.GET.get("top", "")),
            "counts": {tab: f"{counts[tab]:,}" for tab in TABS},
            "summary": _summary(wanted, counts),
            "menu": menu.menu_counts(),
        }
    )


@needs()
def completed(request: HttpRequest) -> JsonResponse:
    """Return queries that complete the last word of `q`, or names that complete `columns`."""
    is_columns = "columns" in request.GET
    text = request.GET.get("columns" if is_columns else "q", "")[:MAX_LENGTH].replace("\0", "")
    return JsonResponse(
        {"completions": column_completions(text) if is_columns else completions(text)}
    )


def _pairs(text: str) -> list[tuple[str, str]]:
    split = (part.partition(":") for part in text.split(",")[:PAGE_SIZE] if part)
    return [(name, digest) for name, _, digest in split]


def _num_new(wanted: Filters, reader: Person, top: str) -> int:
    edge = pages.read(top)
    if edge is None:
        return 0
    newer = pages.beyond(wanted.apply(reader).order_by(), edge)
    return newer.values("pk")[:MAX_NEW].count()


@dataclass(frozen=True, slots=True)
class Tab:
    """A link to the operations of one group, and their number."""

    name: str
    label: str
    count: int
    url: str
    is_current: bool


def _reasons(wanted: Filters, user: Person) -> list[tuple[str, int, str]]:
    """Return (label, number, address) of each reason in the tab of what needs attention."""
    if wanted.tab != "attention" or wanted.problem:
        return []
    numbers = attention.counts(wanted.apply(user))
    return [
        (each.label, numbers[each], "?" + wanted.url(q=f"{wanted.query} attention:{each.lower()}"))
        for each in attention.Attention
        if numbers[each]
    ]


def _tabs(wanted: Filters, counts: dict[str, int]) -> list[Tab]:
    return [
        Tab(
            name=name,
            label=label,
            count=counts[name],
            url="?" + wanted.url(tab=name),
            is_current=name == wanted.tab,
        )
        for name, label in TABS.items()
    ]


@dataclass(frozen=True, slots=True)
class ColumnHeading:
    """The head of a column; a click on it sorts the list, or reverses its order."""

    name: str  # in queries; empty: the list cannot be sorted by it
    label: str
    style: str
    url: str
    order: str  # of aria-sort; empty: the list is not sorted by it


NAME = ("name", "Operation", "col-name")
FIRST = (("state", "State"), ("progress", "Progress"), ("metric", "Metric"))
LAST = (("worker", "Worker"), ("started", "Started"))
UNSORTED = {"metric"}  # each operation has its own


def _headings(wanted: Filters) -> list[ColumnHeading]:
    added = [(name, unquoted(name), "col-added") for name in wanted.columns]
    first, last = (
        [
            ("" if name in UNSORTED else name, label, f"col-{name}")
            for name, label in group
            if name not in wanted.removed
        ]
        for group in (FIRST, LAST)
    )
    return [
        ColumnHeading(
            name,
            label,
            style,
            url="?" + wanted.url(sort=f"-{name}" if wanted.sort == name else name),
            order={name: "ascending", f"-{name}": "descending"}.get(wanted.sort, ""),
        )
        for name, label, style in (NAME, *first, *added, *last)
    ]


def _summary(wanted: Filters, counts: dict[str, int]) -> str:
    waiting = counts["PENDING"] + counts["RESUMING"]
    parts = [f"{counts['RUNNING']:,} running", f"{waiting:,} queued"]
    if number := counts["attention"]:
        parts.append(f"{number:,} to review")
    return " · ".join(parts) + ("" if wanted.is_default else " in this view")
