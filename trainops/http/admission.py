"""What the gateway asks about requests before the application sees them: who sends how much."""

import re
import shutil
import sys
from collections.abc import Iterable
from http import HTTPStatus
from io import BytesIO
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.core.handlers.wsgi import WSGIRequest
from django.db import close_old_connections
from django.http import HttpResponse
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from trainops.gateway import bodies
from trainops.gateway.clients import PasswordWaitOver, Proof
from trainops.gateway.environ import Environ, with_body
from trainops.gateway.live import TooManyStreams
from trainops.gateway.responses import Application
from trainops.http import credentials, passwords
from trainops.http.addresses import client_address
from trainops.http.authentication import TokenAuthentication
from trainops.http.envelope import Failure, answer
from trainops.http.middleware import is_api_path

ANONYMOUS_BYTES = 64 * 1024
FORM_BYTES = 1024**2  # what the other fields and the multipart frame may add to a file
RETRY_SECONDS = 2
COPIES = 4  # of an upload at most: as it came, as it is read, as a table, as it is stored
FORM_UPLOADS = re.compile(r"/(api/v1/datasets|api/v1/operations/import(-run)?|datasets/upload)")
PARTS = re.compile(r"/api/v1/datasets/uploads/[^/]+")
PASSWORDS = re.compile(
    r"/login/|/account/(password|second-factor(/(remove|recovery-codes))?|identity(/disconnect)?)"
    r"|/api/v1/tokens"
    r"|/api/v1/users(/[^/]+/password)?"
    r"|/admin/auth/user/(add|[^/]+/password)/"
)
FILE_UPLOADS = re.compile(r"/api/v1/workers/[^/]+/attempts/[^/]+/\d+/checkpoints/[^/]+/files/[^/]+")


class Admission:
    """The rules of this installation: see `trainops.gateway.gateway.GatewayRules`."""

    anonymous_bytes = ANONYMOUS_BYTES
    num_passwords = passwords.MAX_HASHES

    @property
    def body_bytes(self) -> int:
        return settings.DATA_UPLOAD_MAX_MEMORY_SIZE

    def address(self, environ: Environ) -> str:
        return client_address(environ)

    def checks_password(self, environ: Environ) -> bool:
        is_basic = environ.get("HTTP_AUTHORIZATION", "").lower().startswith("basic ")
        is_sent = is_basic or environ["REQUEST_METHOD"] == "POST"
        return is_sent and PASSWORDS.fullmatch(environ["PATH_INFO"]) is not None

    def credentials(self, environ: Environ) -> list[str]:
        found = (credentials.of_header(environ), credentials.of_session(environ))
        return [each for each in found if each]

    def prove(self, environ: Environ) -> Proof | None:
        close_old_connections()
        try:
            return _by_session(environ) or _by_token(environ)
        finally:
            close_old_connections()

    def upload_bytes(self, environ: Environ) -> int | None:
        path = environ["PATH_INFO"]
        if FORM_UPLOADS.fullmatch(path):
            return settings.THRESHOLDS.max_upload_bytes + FORM_BYTES
        if PARTS.fullmatch(path):
            return settings.THRESHOLDS.max_upload_bytes
        return sys.maxsize if FILE_UPLOADS.fullmatch(path) else None

    def has_space(self, environ: Environ, num_bytes: int) -> bool:
        """Checkpoints of remote workers may take what is reserved for checkpoints; people not."""
        if FILE_UPLOADS.fullmatch(environ["PATH_INFO"]):
            return True
        free = shutil.disk_usage(settings.FILE_UPLOAD_TEMP_DIR).free
        return free >= COPIES * num_bytes + settings.THRESHOLDS.checkpoint_reserve_bytes

    def refusal(self, environ: Environ, error: Exception) -> Application:
        status, code, message, details = _explained(error)
        if is_api_path(environ["PATH_INFO"]):
            response = answer(Failure(code, message, details), status)
        else:
            response = HttpResponse(message, status=status, content_type="text/plain")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            response["Retry-After"] = str(RETRY_SECONDS)
        response["Connection"] = "close"  # the rest of the body is not read
        return _application(response)


def _by_session(environ: Environ) -> Proof | None:
    request = WSGIRequest(with_body(environ, BytesIO(), 0))
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
    if "\x00" in key:
        return None
    request.session = SessionStore(key)
    user = get_user(request)
    return credentials.of_user(environ, user.pk) if user.is_authenticated else None


def _by_token(environ: Environ) -> Proof | None:
    request = Request(WSGIRequest(with_body(environ, BytesIO(), 0)))
    try:
        found = TokenAuthentication().authenticate(request)
    except AuthenticationFailed:
        return None
    return credentials.of_token(environ, found[1]) if found else None


def _explained(error: Exception) -> tuple[int, str, str, dict[str, int]]:
    match error:
        case bodies.BodyTooLarge():
            return 413, "BODY_TOO_LARGE", str(error), {"allowed": error.allowed_bytes}
        case bodies.NotSignedIn():
            return 401, "NOT_AUTHENTICATED", str(error), {"allowed": error.allowed_bytes}
        case bodies.TooSlow():
            allowed = {"minimum_bytes_per_second": bodies.MINIMUM_BYTES_PER_SECOND}
            return 408, "BODY_TOO_SLOW", str(error), allowed
        case bodies.LengthRequired():
            return 411, "LENGTH_REQUIRED", str(error), {}
        case bodies.NoSpace():
            return 507, "DISK_FULL", str(error), {}
        case PasswordWaitOver():
            refused = passwords.TooManyPasswords()
            return refused.status, refused.code, refused.message, refused.details
        case TooManyStreams():
            message = f"Too many event streams of this {error} are open. Ask again instead."
            return 503, "TOO_MANY_STREAMS", message, {"retry_after_seconds": RETRY_SECONDS}
        case _:
            message = (
                "Too many requests of your address or account are in progress. Try again later."
            )
            return 503, "TOO_MANY_REQUESTS", message, {"retry_after_seconds": RETRY_SECONDS}


def _application(response: HttpResponse) -> Application:
    def application(environ: Environ, start_response: Any) -> Iterable[bytes]:
        start_response(f"{response.status_code} {response.reason_phrase}", response.items())
        return [response.content]

    return application
