"""Sign-outs that the provider reported lately, for sign-ins that are completed meanwhile.

A report ends the sessions that are stored. It is recorded before they are read, and a sign-in looks
for it after its session was stored: one of the two finds the other.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from django.db.models import F
from django.db.models.functions import Greatest

from trainops.clock import DatabaseNow, seconds_from_now
from trainops.http.models import RecentCount
from trainops.http.recent_counts import key_of

KEPT_SECONDS = 900  # longer than a sign-in takes from its ID token to its session
SINCE = 1_577_836_800  # 2020: times are counted from there, so that they fit into the column
ANY = 0  # in place of a session at the provider, which is a text


def record(issuer: str, claims: Mapping[str, Any]) -> None:
    """Record the claims of a logout token."""
    subject, at_provider = claims.get("sub"), claims.get("sid")
    keys = {_key(issuer, subject, at_provider)}
    if subject is not None and at_provider is not None:
        keys.add(_key(issuer, subject, ANY))
    at, ends = math.ceil(claims["iat"]) - SINCE, seconds_from_now(KEPT_SECONDS)
    rows = [RecentCount(pk=key, number=at, expires_at=ends) for key in keys]
    RecentCount.objects.bulk_create(rows, ignore_conflicts=True)
    latest = Greatest(F("number"), at)
    RecentCount.objects.filter(pk__in=keys).update(number=latest, expires_at=ends)


def has_ended(issuer: str, begun: Mapping[str, Any]) -> bool:
    """Whether the session at the provider that began a sign-in here has been reported as ended.

    `begun`: sub, sid and iat of the ID token. It is named as by `logout`.
    """
    subject, at_provider = begun["sub"], begun["sid"]
    keys = [_key(issuer, subject, None)]
    if at_provider is None:
        keys.append(_key(issuer, subject, ANY))
    else:
        keys += [_key(issuer, each, at_provider) for each in (subject, None)]
    rows = RecentCount.objects.filter(pk__in=keys, expires_at__gt=DatabaseNow())
    return rows.filter(number__gte=begun["iat"] - SINCE).exists()


def _key(issuer: str, subject: str | None, at_provider: str | int | None) -> str:
    return key_of("oidc", "reported", issuer, json.dumps([subject, at_provider]))
