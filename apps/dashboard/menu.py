"""The counts of the menu, and what is short on the platform: the same for all users."""

from collections.abc import Sequence
from typing import Any, TypedDict, cast

from django.conf import settings
from django.core.cache import cache

from apps.operations import attention
from apps.operations.attempts import quota
from apps.operations.models import Operation
from apps.workers.models import Worker

KEY, SECONDS = "dashboard-counts", 3


class PlatformCounts(TypedDict):
    """The counts of the menu, and what is short on the platform."""

    active: int
    attention: int
    workers: int
    short_disks: list[tuple[str, int]]  # host, free bytes
    over_quota: Sequence[tuple[str, int, int]]  # name, bytes, quota


class MenuCounts(TypedDict):
    """The counts that open pages keep true."""

    active: int
    attention: int
    workers: int


def platform_counts() -> PlatformCounts:
    """Return the counts, a few seconds old at most.

    `short_disks` are the hosts whose disk is so full that periodic saving pauses there, with the
    bytes that are free; `over_quota` are the owners and projects that use most of their quota.
    """
    found = cache.get_or_set(KEY, _count, SECONDS)
    return cast(PlatformCounts, found)  # Django's cache returns Any


def menu_counts() -> MenuCounts:
    """Return the counts that responses to open pages have."""
    found = platform_counts()
    return {
        "active": found["active"],
        "attention": found["attention"],
        "workers": found["workers"],
    }


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
    listed = Operation.objects.listed()
    return {
        "active": listed.active().count(),
        "attention": listed.filter(attention.needed()).count(),
        "workers": len(alive),
        "short_disks": sorted(short.items()),
        "over_quota": quota.above(),
    }
