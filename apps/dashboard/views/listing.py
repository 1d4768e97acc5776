"""The list of operations, and what keeps it live."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from apps.dashboard import filters, pages, rows, words
from apps.dashboard.filters import TABS, Filters
from apps.dashboard.gate import needs
from apps.operations.models import Operation
from apps.operations.requests import access
from trainops.kind import KINDS

PAGE_SIZE = 50
MAX_NEW = 100  # counted no further


@needs()
def operations(request: HttpRequest) -> HttpResponse:
    wanted = Filters.read(request.GET)
    found = rows.select(wanted.apply(Operation.objects.whole(), request.user))
    page = pages.fetch(found, request.GET.get("cursor", ""), PAGE_SIZE)
    counts = filters.counts(wanted, request.user)
    context = {
        "filters": wanted,
        "page": page,
        "lines": rows.lines(page.rows, request.user),
        "tabs": _tabs(wanted, counts),
        "summary": _summary(counts),
        "total": counts[wanted.tab],
        "kinds": [(name, engine.label) for name, engine in KINDS.items()],
        "may_create": access.may_create(request.user),
    }
    return render(request, "dashboard/operations/list.html", context)


@needs()
def live(request: HttpRequest) -> JsonResponse:
    """Return the visible rows that changed, and how many new ones wait.

    `rows` is id:digest of each visible row; `top` is the cursor of the newest (first page only).
    """
    wanted = Filters.read(request.GET)
    seen = dict(_pairs(request.GET.get("rows", "")))
    mine = Operation.objects.filter(pk__in=list(seen)[:PAGE_SIZE])
    changed = {}
    present = set()
    for line in rows.lines(list(rows.select(mine)), request.user):
        present.add(line.id)
        if line.digest != seen[line.id]:
            changed[line.id] = {"html": line.html, "digest": line.digest}
    counts = filters.counts(wanted, request.user)
    return JsonResponse(
        {
            "rows": changed,
            "gone": [row for row in seen if row not in present],
            "new": _num_new(wanted, request),
            "counts": {tab: f"{counts[tab]:,}" for tab in TABS},
            "summary": _summary(counts),
        }
    )


def _pairs(text: str) -> list[tuple[str, str]]:
    split = (part.partition(":") for part in text.split(",")[:PAGE_SIZE] if part)
    return [(name, digest) for name, _, digest in split]


def _num_new(wanted: Filters, request: HttpRequest) -> int:
    edge = pages.read(request.GET.get("top", ""))
    if edge is None:
        return 0
    newer = pages.beyond(wanted.apply(Operation.objects.whole().order_by(), request.user), edge)
    return newer.values("pk")[:MAX_NEW].count()


def _tabs(wanted: Filters, counts: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "label": label,
            "count": counts[name],
            "url": "?" + wanted.url(tab=name),
            "is_current": name == wanted.tab,
        }
        for name, label in TABS.items()
    ]


def _summary(counts: dict[str, int]) -> str:
    waiting = counts["PENDING"] + counts["RESUMING"]
    parts = [f"{counts['RUNNING']:,} running", f"{waiting:,} queued"]
    if failed := counts["FAILED"]:
        parts.append(words.plural(failed, "failure") + (" to look at"))
    return " · ".join(parts)
