"""A span for each request that may submit, resume or change operations."""

from collections.abc import Callable

from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from trainops import log_format
from trainops.tracing import HEADER, TRACING

CHANGING = ("POST", "PUT", "PATCH", "DELETE")
SERVER_ERROR = 500
OF_WORKERS = "/api/v1/workers/"  # they ask several times a second


class TracingMiddleware:
    """Continues the trace of the client, if its request names one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        if not TRACING.is_on:
            raise MiddlewareNotUsed
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.method not in CHANGING or request.path.startswith(OF_WORKERS):
            return self.get_response(request)
        named = {
            "http.request.method": request.method,
            "request_id": str(log_format.current().get("request_id")),
        }
        given = request.headers.get(HEADER, "")
        with TRACING.span(
            request.method, named, kind="server", parent=given, begins_trace=True
        ) as span:
            response = self.get_response(request)
            route = "/" + (request.resolver_match.route if request.resolver_match else "")
            span.update_name(f"{request.method} {route}")
            span.set_attribute("http.route", route)
            span.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= SERVER_ERROR:
                TRACING.failed(span)
        return response
