"""Count what happened lately, in the database: for all web processes, and after a restart."""

from dataclasses import dataclass
from hashlib import blake2b

from django.db.models import F
from django.http import HttpRequest

from trainops.clock import DatabaseNow, seconds_from_now
from trainops.gateway.clients import network_of
from trainops.http.addresses import client_address
from trainops.http.models import RecentCount


@dataclass(frozen=True)
class Counted:
    """How often it happened, this time included, and in how many seconds that is forgotten."""

    number: int
    seconds_left: float


def count(key: str, *, seconds: float) -> Counted:
    """Count once more; the first time begins a period of `seconds`."""
    ends = seconds_from_now(seconds)
    RecentCount.objects.bulk_create([RecentCount(pk=key, expires_at=ends)], ignore_conflicts=True)
    row = RecentCount.objects.filter(pk=key)
    row.filter(expires_at__lte=DatabaseNow()).update(number=0, expires_at=ends)
    row.update(number=F("number") + 1)
    counted = row.annotate(now=DatabaseNow()).first()
    if counted is None:  # expired and deleted in between
        return Counted(1, seconds)
    return Counted(counted.number, max(0.0, (counted.expires_at - counted.now).total_seconds()))


def take_back(key: str) -> None:
    """Count once less: what was counted before it was known turned out not to count."""
    RecentCount.objects.filter(pk=key, number__gt=0).update(number=F("number") - 1)


def forget_expired() -> int:
    """Delete the counters whose period has ended."""
    return RecentCount.objects.filter(expires_at__lte=DatabaseNow()).delete()[0]


def key_of(*parts: str) -> str:
    """Return the digest that a counter has instead of a name and an address."""
    return blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()


def network(request: HttpRequest | None) -> str:
    """Return the address of the client; of IPv6 a /64, which is what one customer gets."""
    return network_of(client_address(request.META)) if request else ""
