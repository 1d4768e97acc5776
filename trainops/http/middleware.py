"""The last word on every answer under /api/: whatever happened, it is in the envelope.

Stands first in MIDDLEWARE, so that it also sees what other middleware refused (a foreign host,
CSRF, a redirect loop) and what no view was found for.
"""

import logging
import secrets
from collections.abc import Callable
from http import HTTPStatus

from django.conf import settings
from django.core.signals import got_request_exception
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from trainops.http.envelope import Failure, answer
from trainops.http.errors import CODES

logger = logging.getLogger(__name__)
PREFIX = "/api/"
KEPT_HEADERS = ("Allow", "Retry-After", "WWW-Authenticate")


def is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith(PREFIX)


class ApiEnvelopeMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not is_api(request):
            return self.get_response(request)
        if problem := _unusable(request):
            return answer(Failure("BAD_REQUEST", problem, {}), 400)
        response = self.get_response(request)
        if response.status_code < 400 or _is_json(response):
            return response
        return _replaced(request, response)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer a bug in a view; also with DEBUG, where Django would send a page of HTML."""
        if not is_api(request):
            return None
        if isinstance(error, OperationalError | InterfaceError):
            logger.error("The database did not answer %s", request.path, exc_info=error)
            return _database_away()
        reference = secrets.token_hex(4)
        logger.error("Bug %s at %s", reference, request.path, exc_info=error)
        got_request_exception.send(sender=self.__class__, request=request)
        return internal_error(reference, error)


def internal_error(reference: str, error: Exception | None = None) -> HttpResponse:
    details = {"reference": reference}
    if settings.DEBUG and error is not None:
        details["exception"] = repr(error)
    message = f"Something broke in the server. The log has the details under {reference}."
    return answer(Failure("INTERNAL_ERROR", message, details), 500)


def _database_away() -> HttpResponse:
    message = "The database did not answer. Nothing was changed; try again in a moment."
    response = answer(Failure("SERVICE_UNAVAILABLE", message, {"part": "database"}), 503)
    response["Retry-After"] = "5"
    return response


def _unusable(request: HttpRequest) -> str | None:
    """NUL characters reach no database and no file name: they are refused at the door."""
    if "\x00" in request.path_info or "%00" in request.META.get("QUERY_STRING", ""):
        return "The address contains the character U+0000."
    return None


def _is_json(response: HttpResponseBase) -> bool:
    return response.get("Content-Type", "").startswith("application/json")


def _replaced(request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
    """`response`, which is an error page made for people, said in the envelope."""
    status = HTTPStatus(response.status_code)
    code = CODES.get(status, "INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST")
    new = answer(Failure(code, _explain(request, status), {"path": request.path}), status)
    for name in KEPT_HEADERS:
        if name in response:
            new[name] = response[name]
    new.cookies = response.cookies
    response.close()
    return new


def _explain(request: HttpRequest, status: HTTPStatus) -> str:
    match status:
        case HTTPStatus.NOT_FOUND:
            return f"There is nothing at {request.path}. The API is described at /api/schema/."
        case HTTPStatus.FORBIDDEN:
            return "The request was refused (a browser's form must carry its CSRF token)."
        case HTTPStatus.BAD_REQUEST:
            return "The request could not be understood: check its host, headers and body."
        case _:
            return status.description or status.phrase
