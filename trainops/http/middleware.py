"""The last word on every answer under /api/: whatever happened, it is in the envelope.

Stands first in MIDDLEWARE, so that it also sees what other middleware refused (a foreign host,
CSRF, a redirect loop) and what no view was found for.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from urllib.parse import unquote_plus

from django.conf import settings
from django.core.exceptions import BadRequest, SuspiciousOperation
from django.core.signals import got_request_exception
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string

from trainops.errors import DomainError
from trainops.http.envelope import Failure, answer
from trainops.http.errors import CODES
from trainops.statement_timeout import at_most
from trainops.version import VERSION

logger = logging.getLogger(__name__)
PREFIX = "/api/"
DATABASE_RETRY_SECONDS = 5
CHARSETS = ("utf-8", "utf8", "us-ascii", "ascii")
UNCLEAR = "Bad request: check its host, headers and body."
KEPT_HEADERS = ("Allow", "Retry-After", "WWW-Authenticate")
# Django would take such a body for an empty one, and do what was not asked.
NO_LENGTH = "A request body requires a Content-Length; chunked bodies are not supported."


def is_api(request: HttpRequest) -> bool:
    return is_api_path(request.path_info)


def is_api_path(path: str) -> bool:
    return path.startswith(PREFIX)


class ApiEnvelopeMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if is_api(request):
            response = self._answer(request)
            if "HTTP_AUTHORIZATION" in request.META:  # of a client, which says if it differs
                response["Trainops-Version"] = VERSION
        else:
            require_readable(request)
            response = self.get_response(request)
        response.setdefault("Cache-Control", "no-store")  # static files say how long they are kept
        if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and "Retry-After" in response:
            keep_quiet(response)
        return response

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        try:
            require_readable(request)
        except BadRequest as problem:
            return answer(Failure("BAD_REQUEST", str(problem), {}), 400)
        if "HTTP_TRANSFER_ENCODING" in request.META and "CONTENT_LENGTH" not in request.META:
            return answer(Failure("LENGTH_REQUIRED", NO_LENGTH, {}), 411)
        response = self.get_response(request)
        if response.status_code < 400 or _is_json(response):
            return response
        return _replaced(request, response)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer what a view could not; also with DEBUG, where Django would send a page of HTML."""
        if isinstance(error, OperationalError | InterfaceError):
            return database_away(request, error)
        if isinstance(error, UnreadablePostError):  # its client sends too slowly, or has gone
            return answer(Failure("BODY_NOT_READABLE", str(error), {}), 408)
        if not is_api(request):
            return _refused_page(error) if isinstance(error, DomainError) else None
        if isinstance(error, SuspiciousOperation):  # Django answers the same for pages
            return answer(Failure("BAD_REQUEST", str(error), {}), 400)
        reference = secrets.token_hex(4)
        logger.error("Bug %s at %s", reference, request.path, exc_info=error)
        got_request_exception.send(sender=self.__class__, request=request)
        return internal_error(reference, error)


def _refused_page(refusal: DomainError) -> HttpResponse:
    """Return the page for a refusal that a view did not answer itself."""
    page = render_to_string("refused.html", {"refusal": refusal})
    response = HttpResponse(page, status=refusal.status)
    if refusal.retry_after_seconds:
        response["Retry-After"] = str(refusal.retry_after_seconds)
    return response


def internal_error(reference: str, error: Exception | None = None) -> HttpResponse:
    details = {"reference": reference}
    if settings.DEBUG and error is not None:
        details["exception"] = repr(error)
    message = f"Internal server error. The log has the details under {reference}."
    return answer(Failure("INTERNAL_ERROR", message, details), 500)


def database_away(request: HttpRequest, error: BaseException) -> HttpResponse:
    """Say that it passes: the cause is outside, and one line in the log is enough."""
    logger.error(
        "The database did not respond to %s: %s", request.path, " ".join(str(error).split())
    )
    if is_api(request):
        message = "The database did not respond. Check whether your change was made, then retry."
        response = answer(Failure("SERVICE_UNAVAILABLE", message, {"part": "database"}), 503)
    else:
        response = HttpResponse(render_to_string("503.html"), status=503)
    response["Retry-After"] = str(DATABASE_RETRY_SECONDS)
    keep_quiet(response)
    return response


def keep_quiet(response: HttpResponseBase) -> None:
    """It passes, and was logged where it was found: Django need not log it once more."""
    response._has_been_logged = True  # type: ignore[attr-defined]


class FormMiddleware:
    """Refuses forms with a NUL character. Stands behind the check for CSRF, which reads them.

    The API's parsers and fields do the same for its bodies.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: object) -> None:
        if request.method == "POST" and not is_api(request):
            require_usable(("form", text) for pair in request.POST.lists() for text in _flat(pair))


def require_readable(request: HttpRequest) -> None:
    """Raise BadRequest where text of the request cannot be used; reads no body.

    Of Python's charsets some decode bytes to no text, others to halves of surrogate pairs.
    """
    charset = (request.content_params or {}).get("charset", CHARSETS[0])
    if charset.lower() not in CHARSETS:
        raise BadRequest(f"The Content-Type has the charset {charset[:40]!r}; allowed: utf-8.")
    require_usable(_texts(request))


def require_usable(texts: Iterable[tuple[str, str]]) -> None:
    """Raise BadRequest for a NUL character: it reaches no database and no file name."""
    for place, text in texts:
        if "\x00" in text:
            raise BadRequest(f"The {place} contains the character U+0000.")


def _texts(request: HttpRequest) -> Iterator[tuple[str, str]]:
    """Yield all of a request but its body: where it is, and the text."""
    yield "address", request.path_info
    yield "address", unquote_plus(request.META.get("QUERY_STRING", ""))
    yield from (("cookies", text) for pair in request.COOKIES.items() for text in pair)
    yield from (
        (f"header {name[5:]}", text)
        for name, text in request.META.items()
        if name.startswith("HTTP_") and isinstance(text, str)
    )


def _flat(pair: tuple[str, list[str]]) -> Iterator[str]:
    yield pair[0]
    yield from pair[1]


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
            return f"There is no endpoint {request.path}. See /api/schema/ for the API."
        case HTTPStatus.FORBIDDEN:
            return "The request was refused: the CSRF token is missing or invalid."
        case HTTPStatus.BAD_REQUEST:
            return UNCLEAR
        case _:
            return status.description or status.phrase


class PatienceMiddleware:
    """Limits the time of database statements: requests get 503 if the database hangs."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        with at_most(settings.THRESHOLDS.patience_seconds):
            return self.get_response(request)
