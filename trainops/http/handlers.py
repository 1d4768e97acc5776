"""Django's error handlers: the envelope under /api/, the usual pages elsewhere.

Name them in the root urlconf: `handler404 = "trainops.http.handlers.not_found"` and so on.
"""

import secrets
import sys

from django.core.exceptions import BadRequest
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.views import defaults

from trainops.http.envelope import Failure, answer
from trainops.http.middleware import database_away, internal_error, is_api


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if is_api(request):
        message = "Bad request: check its host, headers and body."
        return answer(Failure("BAD_REQUEST", message, {}), 400)
    if isinstance(exception, BadRequest):  # says what is wrong to whom sent it
        context = {"exception": exception}
        return HttpResponse(render_to_string("400.html", context), status=400)
    return defaults.bad_request(request, exception)


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
