"""Tokens, and who one is."""

from collections.abc import Mapping

from django.contrib.auth import authenticate
from django.contrib.auth.models import AbstractBaseUser, User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import BasicAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from trainops.errors import DomainError
from trainops.http import tokens, users
from trainops.http.asking import person
from trainops.http.authentication import TokenAuthentication
from trainops.http.models import Token
from trainops.http.permissions import is_worker_token
from trainops.http.rate_limits import TriedPasswords
from trainops.http.roles import role_of
from trainops.http.serializers import (
    MeSerializer,
    MessageSerializer,
    NewTokenSerializer,
    TokenRequest,
    TokenRequestSerializer,
    TokenSerializer,
)

SIGN_IN = "Sign in, or send username and password in the body."


class TokensView(APIView):
    """The caller's own tokens."""

    authentication_classes = (TokenAuthentication, SessionAuthentication, BasicAuthentication)
    permission_classes = (AllowAny,)  # POST may bring a password in its body instead
    throttle_classes = (TriedPasswords,)

    @extend_schema(
        operation_id="tokens_create",
        request=TokenRequestSerializer,
        responses={201: NewTokenSerializer},
    )
    def post(self, request: Request) -> Response:
        """Create a token; the response shows its secret only once."""
        if not request.user.is_authenticated and not _brings_password(request.data):
            raise NotAuthenticated(SIGN_IN)
        serializer = TokenRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        wanted = serializer.validated_data
        token = tokens.create_wanted(_who(request, wanted), wanted)
        body = NewTokenSerializer(token, context={"request": request}).data
        return Response(body, status=201)

    @extend_schema(operation_id="tokens_list", responses=TokenSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the caller's tokens, without their secrets."""
        rows = _own(request)
        return Response(TokenSerializer(rows, many=True, context={"request": request}).data)


class TokenView(APIView):
    permission_classes = (IsAuthenticated,)

    @extend_schema(operation_id="tokens_revoke", responses={200: MessageSerializer})
    def delete(self, request: Request, token_id: str) -> Response:
        """Revoke one of the caller's tokens, or `current`: the token of this request."""
        if token_id == "current" and isinstance(request.auth, Token):  # noqa: S105 - a word
            token_id = request.auth.public_id
        if not tokens.revoke(_own(request).filter(public_id=token_id)):
            raise tokens.TokenNotFound("You have no token", token_id)
        return Response({"message": f"Token {token_id} was revoked."})


class MeView(APIView):
    permission_classes = (IsAuthenticated,)

    @extend_schema(operation_id="me", responses=MeSerializer)
    def get(self, request: Request) -> Response:
        """Return the name and the role of the caller."""
        user = person(request)
        role = role_of(user)
        return Response(
            {
                "username": user.get_username(),
                "email": user.email,
                "role": role.value if role else None,
                "is_superuser": user.is_superuser,
                "token_id": request.auth.public_id if isinstance(request.auth, Token) else None,
            }
        )


def _brings_password(data: object) -> bool:
    return isinstance(data, Mapping) and bool(data.keys() & {"username", "password"})


def _who(request: Request, wanted: TokenRequest) -> AbstractBaseUser:
    if "username" in wanted:
        user = authenticate(
            request._request,
            username=wanted["username"],
            password=wanted["password"],
            code=wanted.get("code"),
        )
        if user is None:
            raise AuthenticationFailed("Unknown username or wrong password.")
        return user
    if not isinstance(request.user, User):
        raise NotAuthenticated(SIGN_IN)
    if is_worker_token(request):
        raise DomainError("PERMISSION_DENIED", "A worker token cannot create tokens.", status=403)
    if users.is_service(request.user):
        message = "Superusers create the tokens of service accounts."
        raise DomainError("PERMISSION_DENIED", message, status=403)
    return request.user


def _own(request: Request) -> QuerySet[Token]:
    if not request.user.is_authenticated:
        raise NotAuthenticated
    own: QuerySet[Token] = Token.objects.filter(user=request.user)
    return own.filter(pk=request.auth.pk) if is_worker_token(request) else own
