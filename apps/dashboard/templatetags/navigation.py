"""The navigation menu of every page, with its counts."""

from collections.abc import Sequence
from typing import Any, TypedDict, cast

from django import template
from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.dashboard import tour
from apps.operations.attempts import quota
from apps.operations.models import Operation
from apps.workers.models import Worker
from trainops.gateway.live import OFFERED

register = template.Library()
COUNTS_KEY, COUNTS_SECONDS = "dashboard-counts", 5
BADGE = '<span class="badge bg-blue-lt ms-auto">{}<span class="visually-hidden"> {}</span></span>'


class PlatformCounts(TypedDict):
    """The counts of the menu, and what is short on the platform."""

    active: int
    workers: int
    short_disks: list[tuple[str, int]]  # host, free bytes
    over_quota: Sequence[object]
    quota: int | None


@register.simple_tag
def platform_counts() -> PlatformCounts:
    """Return how many operations are active and workers alive, a few seconds old at most.

    `short_disks` are the hosts whose disk is so full that periodic saving pauses there, with the
    bytes that are free; `over_quota` are the owners whose quota is used up, with what theirs take.
    """
    found = cache.get_or_set(COUNTS_KEY, _count, COUNTS_SECONDS)
    return cast(PlatformCounts, found)  # Django's cache returns Any


def _count() -> PlatformCounts:
    silent = (Worker.Status.GONE, Worker.Status.TEMPORARILY_UNAVAILABLE)
    workers: Any = Worker.objects.with_status()
    alive = list(workers.exclude(status__in=silent).values("host", "storage_free_bytes"))
    reserve = settings.THRESHOLDS.checkpoint_reserve_bytes
    short = {
        each["host"]: each["storage_free_bytes"]
        for each in alive
        if each["storage_free_bytes"] is not None and each["storage_free_bytes"] < reserve
    }
    active = Operation.objects.listed().active().count()
    return {
        "active": active,
        "workers": len(alive),
        "short_disks": sorted(short.items()),
        "over_quota": quota.owners_above(),
        "quota": settings.THRESHOLDS.checkpoint_quota_bytes,
    }


@register.filter
def starts_tour(request: HttpRequest | str) -> bool:
    """Return whether this page starts the tour; a page of an error may have no request."""
    has_session = isinstance(request, HttpRequest) and hasattr(request, "session")
    return has_session and tour.is_due(cast(HttpRequest, request))


@register.simple_tag(takes_context=True)
def nav_link(
    context: Context, url: str, label: str, count: int | None = None, meaning: str = ""
) -> SafeString:
    path = context["request"].path if "request" in context else ""
    is_here = path == url or (url != "/" and path.startswith(url))
    is_here = is_here or (url == "/" and path.startswith("/operations/"))
    badge = format_html(BADGE, count, meaning) if count else ""
    return format_html(
        '<li class="nav-item{}"><a class="nav-link" href="{}"{}>'
        '<span class="nav-link-title">{}</span>{}</a></li>',
        " active" if is_here else "",
        url,
        SafeString(' aria-current="page"') if is_here else "",
        label,
        badge,
    )


@register.filter
def has_streams(request: HttpRequest | str) -> bool:
    """Whether the server sends events: the gateway does, Django's own servers do not."""
    return isinstance(request, HttpRequest) and OFFERED in request.META
