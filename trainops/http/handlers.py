"""Django's error handlers: the envelope under /api/, the usual pages elsewhere.

Name them in the root urlconf: `handler404 = "trainops.http.handlers.not_found"` and so on.
"""

import secrets
import sys

from django.core.exceptions import BadRequest, DisallowedHost
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.http.request import split_domain_port
from django.template.loader import render_to_string
from django.views import defaults

from trainops.http.envelope import Failure, answer
from trainops.http.middleware import UNCLEAR, database_away, internal_error, is_api

MAX_HOST_LENGTH = 253


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if isinstance(exception, DisallowedHost):
        exception = BadRequest(_host_problem(request))
    if is_api(request):
        message = str(exception) if isinstance(exception, BadRequest) else UNCLEAR
        return answer(Failure("BAD_REQUEST", message, {}), 400)
    if isinstance(exception, BadRequest):  # says what is wrong to whom sent it
        context = {"exception": exception}
        return HttpResponse(render_to_string("400.html", context), status=400)
    return defaults.bad_request(request, exception)


def _host_problem(request: HttpRequest) -> str:
    host, _ = split_domain_port(request.META.get("HTTP_HOST", ""))
    if not host or len(host) > MAX_HOST_LENGTH:
        return "The request has no valid Host header."
    return (
        f"The server is not open to the host name {host!r}; allowed: those that "
        "TRAINOPS_ALLOWED_HOSTS of its web process names."
    )


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if is_api(request):
        message = str(exception) or "This is not allowed."
        return answer(Failure("PERMISSION_DENIED", message, {}), 403)
    return defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if is_api(request):
        message = f"There is no endpoint {request.path}. See /api/schema/ for the API."
        return answer(Failure("NOT_FOUND", message, {"path": request.path}), 404)
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    error = sys.exception()  # of middleware, where no other middleware sees it
    if isinstance(error, OperationalError | InterfaceError):
        return database_away(request, error)
    if is_api(request):
        return internal_error(secrets.token_hex(4))
    return defaults.server_error(request)
