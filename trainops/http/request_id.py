"""The id of each request: in its log lines, and in the header X-Request-ID of its response."""

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from trainops import log_format

HEADER = "X-Request-ID"


class RequestIdMiddleware:
    """Takes the id that a client or proxy has given, or makes one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = log_format.request_id(request.headers.get(HEADER, ""))
        with log_format.about(request_id=given):
            response = self.get_response(request)
        response[HEADER] = given
        return response
