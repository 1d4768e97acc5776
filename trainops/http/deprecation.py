"""Deprecated endpoints: each response names the dates, as docs/api.md describes."""

from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, ClassVar

from django.utils.http import http_date

if TYPE_CHECKING:
    from rest_framework.response import Response
    from rest_framework.views import APIView as View
else:
    View = object  # it is mixed into a view


class Deprecated(View):
    """Stands first among the bases of a view; also its failures have the headers."""

    deprecated_on: ClassVar[date]
    sunset_on: ClassVar[date]  # the first day on which the endpoint may be missing

    def finalize_response(self, *args: Any, **kwargs: Any) -> "Response":
        """Add Deprecation (RFC 9745), Sunset (RFC 8594) and a link to the description."""
        response = super().finalize_response(*args, **kwargs)
        response["Deprecation"] = f"@{_timestamp(self.deprecated_on)}"
        response["Sunset"] = http_date(_timestamp(self.sunset_on))
        response["Link"] = '</api/docs/>; rel="deprecation"; type="text/html"'
        return response


def _timestamp(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp())
