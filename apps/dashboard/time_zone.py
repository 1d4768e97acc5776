"""The time zone of the reader: pages and admin are rendered in it, the API stays in UTC.

`static/js/zone.js` writes the browser's time zone into a cookie. Without it, or with one that the
server does not know, times are in the zone of the server, until the page's script mends them.
"""

import re
from collections.abc import Callable
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

COOKIE = "time_zone"
NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}", re.ASCII)
MAX_LENGTH = 64


class TimeZoneMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith("/api/"):
            return self.get_response(request)
        with timezone.override(zone(request.COOKIES.get(COOKIE, ""))):
            return self.get_response(request)


def zone(name: str) -> ZoneInfo | None:
    """Return the time zone of this name; None, which stands for the server's, if there is none."""
    if len(name) > MAX_LENGTH or not NAME.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not found; a file or folder that is no time zone
        return None
