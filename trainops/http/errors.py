"""Every exception of the API as one kind of answer: the failure envelope."""

from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any

from django.core import exceptions as django
from django.http import Http404, HttpResponse
from django.http.multipartparser import MultiPartParserError
from rest_framework import exceptions as drf
from rest_framework.views import set_rollback

from trainops.errors import MAX_PROBLEMS, DomainError
from trainops.http.envelope import Failure, answer
from trainops.runtime.errors import ConfigError

CODES = {
    HTTPStatus.BAD_REQUEST: "BAD_REQUEST",
    HTTPStatus.UNAUTHORIZED: "NOT_AUTHENTICATED",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.NOT_FOUND: "NOT_FOUND",
    HTTPStatus.METHOD_NOT_ALLOWED: "METHOD_NOT_ALLOWED",
    HTTPStatus.NOT_ACCEPTABLE: "NOT_ACCEPTABLE",
    HTTPStatus.CONFLICT: "CONFLICT",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "BODY_TOO_LARGE",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "UNSUPPORTED_MEDIA_TYPE",
    HTTPStatus.TOO_MANY_REQUESTS: "THROTTLED",
    HTTPStatus.SERVICE_UNAVAILABLE: "SERVICE_UNAVAILABLE",
}


def exception_handler(error: Exception, context: Mapping[str, object]) -> HttpResponse | None:
    """The answer to `error`, or None: then it is a bug, for the middleware to log and answer."""
    found = failure_of(error, context)
    if found is None:
        return None
    failure, status = found
    set_rollback()
    return answer(failure, status, _headers(error))


def failure_of(error: Exception, context: Mapping[str, object]) -> tuple[Failure, int] | None:
    match error:
        case DomainError():
            return Failure(error.code, error.message, error.details), error.status
        case ConfigError():
            return _fields("INVALID_CONFIG", error.errors.items(), error.num_more), 400
        case drf.ValidationError():
            return _fields("VALIDATION_ERROR", flatten(error.detail)), 400
        case django.ValidationError():
            return _fields("VALIDATION_ERROR", flatten(_messages(error))), 400
        case drf.APIException():
            return _framework(error, context), error.status_code
        case _:
            return _plain_django(error)


def _plain_django(error: Exception) -> tuple[Failure, int] | None:
    match error:
        case Http404():
            return Failure("NOT_FOUND", "Not found.", {}), 404
        case django.PermissionDenied():
            return Failure("PERMISSION_DENIED", str(error) or "This is not allowed.", {}), 403
        case django.RequestDataTooBig():
            return Failure("BODY_TOO_LARGE", str(error), {}), 413
        case django.SuspiciousOperation() | django.BadRequest() | MultiPartParserError():
            return Failure("BAD_REQUEST", str(error), {}), 400
        case _:
            return None


def _framework(error: drf.APIException, context: Mapping[str, Any]) -> Failure:
    message = str(error.detail)
    match error:
        case drf.Throttled():
            return Failure(
                "THROTTLED", message, {"retry_after_seconds": getattr(error, "wait", None)}
            )
        case drf.MethodNotAllowed():
            view = context["view"]
            details = {"given": context["request"].method, "allowed": view.allowed_methods}
            return Failure("METHOD_NOT_ALLOWED", message, details)
        case drf.UnsupportedMediaType():
            parsers = getattr(context.get("view"), "parser_classes", ())
            details = {
                "given": context["request"].content_type,
                "allowed": [parser.media_type for parser in parsers],
            }
            return Failure("UNSUPPORTED_MEDIA_TYPE", message, details)
        case drf.NotAcceptable():
            return Failure("NOT_ACCEPTABLE", message, {"allowed": ["application/json"]})
        case _:
            return Failure(str(error.default_code).upper(), message, {})


def _fields(code: str, problems: Iterable[tuple[str, str]], num_more: int = 0) -> Failure:
    """A failure that names the first problem in its message, and the first 20 in its details."""
    all_problems = iter(problems)
    payload = dict(islice(all_problems, MAX_PROBLEMS))
    num_more += sum(1 for _ in all_problems)
    (field, problem), *others = payload.items() or [("", "The input is not valid.")]
    message = f"{field}: {problem}" if field else problem
    if others:
        names = ", ".join(name for name, _ in others)
        message += f" (and {len(others) + num_more} more: {names}{', …' if num_more else ''})"
    details = {"fields": payload} | ({"num_more": num_more} if num_more else {})
    return Failure(code, message, details)


def flatten(detail: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Nested errors of serializers as (dotted field path, problem), one line a field."""
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            named = "" if name in ("non_field_errors", "__all__") else str(name)
            yield from flatten(inner, ".".join(part for part in (path, named) if part))
    elif isinstance(detail, list | tuple) and any(
        isinstance(inner, Mapping | list) for inner in detail
    ):
        for index, inner in enumerate(detail):
            if inner:
                yield from flatten(inner, f"{path}.{index}" if path else str(index))
    elif isinstance(detail, list | tuple):
        yield path, " ".join(str(problem) for problem in detail)
    else:
        yield path, str(detail)


def _messages(error: django.ValidationError) -> object:
    return error.message_dict if hasattr(error, "error_dict") else error.messages


def _headers(error: Exception) -> dict[str, str]:
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if wait := getattr(error, "wait", None) or getattr(error, "retry_after_seconds", None):
        headers["Retry-After"] = str(int(wait))
    return headers
