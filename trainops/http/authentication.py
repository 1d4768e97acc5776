"""How a request proves who sends it: a token in the header, or the session of a browser."""

from django.contrib.auth.models import User
from knox.auth import TokenAuthentication as KnoxAuthentication
from rest_framework.authentication import get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from trainops.http.models import Token

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
        return user, auth

    def authenticate_credentials(self, token: bytes) -> tuple[User, Token]:
        if not token.isascii() or b"\x00" in token:
            raise AuthenticationFailed("Invalid token.")
        user, auth = super().authenticate_credentials(token)
        return user, auth

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
