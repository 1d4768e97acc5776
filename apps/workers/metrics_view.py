"""GET /metrics: for Prometheus, by a token or from networks that are named."""

import ipaddress
import secrets
from collections.abc import Iterator
from http import HTTPStatus

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from apps.installation.counters import COUNTERS
from apps.workers import metrics
from trainops.http.addresses import client_address
from trainops.metrics_settings import NETWORKS, TOKEN

FORWARDED = ("X-Forwarded-For", "Forwarded", "X-Real-IP")
REFUSED = (
    f"The metrics are for this machine only. Set {TOKEN} and send it as a bearer token, "
    f"or name the networks of the monitoring in {NETWORKS}.\n"
)


class _Current:
    """What prometheus-client takes for a registry."""

    def collect(self) -> Iterator[Metric]:
        return metrics.collect()


@require_safe
def metrics_page(request: HttpRequest) -> HttpResponse:
    """Return all metrics in the text format of Prometheus, or of OpenMetrics where it is asked."""
    if not _may_read(request):
        response = HttpResponse(
            REFUSED, content_type="text/plain; charset=utf-8", status=HTTPStatus.UNAUTHORIZED
        )
        response["WWW-Authenticate"] = "Bearer"
        return response
    COUNTERS.flush()  # what this process itself has counted
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(_Current()), content_type=content_type)


def _may_read(request: HttpRequest) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    wanted = settings.METRICS_TOKEN
    if wanted and scheme.lower() == "bearer":
        return secrets.compare_digest(given.strip().encode(), wanted.encode())
    return _is_near(request)


def _is_near(request: HttpRequest) -> bool:
    """Whether the client is in a network that needs no token.

    Without BEHIND_HTTPS_PROXY, a proxy on this machine would make every client local.
    """
    is_forwarded = any(name in request.headers for name in FORWARDED)
    if is_forwarded and not settings.BEHIND_HTTPS_PROXY:
        return False
    try:
        address = ipaddress.ip_address(client_address(request.META))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in each for each in settings.METRICS_NETWORKS)
