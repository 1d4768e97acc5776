"""How a request proves who sends it: a token in the header, or the session of a browser."""

from django.contrib.auth.models import User
from knox.auth import TokenAuthentication as KnoxAuthentication
from rest_framework.authentication import get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from trainops.http.models import Token, TokenScope

BEARER, TOKEN = b"bearer", b"token"


class TokenAuthentication(KnoxAuthentication):  # type: ignore[misc] # knox is not typed
    """`Authorization: Bearer <token>`; the word `Token`, common with Django, works too."""

    def authenticate(self, request: Request) -> tuple[User, Token] | None:
        scheme, _, token = get_authorization_header(request).partition(b" ")
        if scheme.lower() not in (BEARER, TOKEN):
            return None
        if not token or b" " in token.strip():
            raise AuthenticationFailed(
                "The Authorization header must have the form 'Bearer <token>'."
            )
        user, auth = self.authenticate_credentials(token.strip())
        if auth.scope == TokenScope.READ and request.method not in SAFE_METHODS:
            raise PermissionDenied(f"This token only reads; {request.method} requires another.")
        return user, auth

    def authenticate_credentials(self, token: bytes) -> tuple[User, Token]:
        if not token.isascii() or b"\x00" in token:
            raise AuthenticationFailed("Invalid token.")
        user, auth = super().authenticate_credentials(token)
        return user, auth

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
