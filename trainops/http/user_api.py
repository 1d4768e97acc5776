"""Endpoints for accounts and the tokens of service accounts; for superusers."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from trainops.http import tokens, users
from trainops.http.asking import body_of, person, query_of
from trainops.http.models import Token
from trainops.http.pagination import NewestFirstCounted
from trainops.http.permissions import IsSuperuser
from trainops.http.rate_limits import SetPasswords
from trainops.http.roles import Role, role_among
from trainops.http.serializers import (
    MessageSerializer,
    NewTokenRequestSerializer,
    NewTokenSerializer,
    StrictSerializer,
    TokenSerializer,
)


class UserSerializer(serializers.Serializer[Any]):
    username = serializers.CharField(read_only=True)
    email = serializers.CharField(read_only=True)
    role = serializers.SerializerMethodField(help_text="Highest role; null: none.")
    is_superuser = serializers.BooleanField(read_only=True)
    is_active = serializers.BooleanField(
        read_only=True, help_text="False: no access by password, session or token."
    )
    created_at = serializers.DateTimeField(source="date_joined", read_only=True)
    signed_in_at = serializers.DateTimeField(
        source="last_login", read_only=True, allow_null=True, help_text="Latest sign-in on a page."
    )
    is_service = serializers.SerializerMethodField(
        help_text="Whether it is a service account: it has tokens and no password."
    )

    has_second_factor = serializers.SerializerMethodField(
        help_text="Whether a sign-in by password also requires a code."
    )

    def get_role(self, user: User) -> str | None:
        if user.is_superuser:
            return Role.ADMIN.value
        role = role_among(group.name for group in user.groups.all())
        return role.value if role else None

    def get_is_service(self, user: User) -> bool:
        return users.is_service(user)

    def get_has_second_factor(self, user: User) -> bool:
        return hasattr(user, "second_factor")


class PasswordSerializer(serializers.Serializer[Any]):
    """A password that was set."""

    username = serializers.CharField(read_only=True)
    password = serializers.CharField(read_only=True, help_text="Password; shown only once.")


class NewUserSerializer(UserSerializer):
    """A created account."""

    password = serializers.CharField(
        read_only=True,
        allow_null=True,
        help_text="Password; shown only once. Null: a service account.",
    )


def _role_field(**options: Any) -> serializers.ChoiceField:
    allowed = f"{{input!r}} is not a role; allowed: {', '.join(Role)}"
    return serializers.ChoiceField(
        choices=[each.value for each in Role], error_messages={"invalid_choice": allowed}, **options
    )


class UserRequestSerializer(StrictSerializer):
    username = serializers.CharField(max_length=150, validators=[UnicodeUsernameValidator()])
    email = serializers.EmailField(required=False, default="", allow_blank=True, max_length=254)
    role = _role_field(
        required=False, default=None, allow_null=True, help_text="By default no role: no access."
    )
    is_service = serializers.BooleanField(
        required=False, default=False, help_text="A service account: with tokens, no password."
    )


class UserChangeSerializer(StrictSerializer):
    role = _role_field(required=False, allow_null=True, help_text="Null: no role.")
    is_active = serializers.BooleanField(required=False)

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        if not attrs:
            raise serializers.ValidationError(f"got nothing; allowed: {', '.join(self.fields)}")
        return attrs


class PasswordRequestSerializer(StrictSerializer):
    password = serializers.CharField(
        max_length=1000,
        required=False,
        default="",
        trim_whitespace=False,
        style={"input_type": "password"},
        help_text="By default a random one.",
    )


class UserPages(NewestFirstCounted):
    """By name."""

    default_ordering = "username"


class UsersView(APIView):
    permission_classes = (IsSuperuser,)
    throttle_classes = (SetPasswords,)
    pagination_class = UserPages
    ordering_fields: ClassVar[Iterable[str]] = ()

    @extend_schema(operation_id="users_list", responses=UserSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the accounts by name."""
        query_of(request, is_paged=True)
        paginator = UserPages()
        found = User.objects.select_related("service_account", "second_factor")
        page = paginator.paginate_queryset(found.prefetch_related("groups"), request, self)
        return paginator.get_paginated_response(UserSerializer(page, many=True).data)

    @extend_schema(
        operation_id="users_create",
        request=UserRequestSerializer,
        responses={201: NewUserSerializer},
    )
    def post(self, request: Request) -> Response:
        """Create an account with a random password, which the response shows only once."""
        wanted = body_of(request, UserRequestSerializer)
        role = Role(wanted["role"]) if wanted["role"] else None
        user, password = users.create(
            wanted["username"], email=wanted["email"], role=role, is_service=wanted["is_service"]
        )
        body = UserSerializer(user).data | {"password": password}
        address = reverse("api-user", args=[user.username])
        return Response(body, status=201, headers={"Location": address})


class UserView(APIView):
    permission_classes = (IsSuperuser,)

    @extend_schema(operation_id="users_get", responses=UserSerializer)
    def get(self, request: Request, username: str) -> Response:
        """Return an account."""
        return Response(UserSerializer(users.get(username)).data)

    @extend_schema(
        operation_id="users_change", request=UserChangeSerializer, responses=UserSerializer
    )
    def patch(self, request: Request, username: str) -> Response:
        """Change the role of an account, disable or enable it; the caller's own is refused."""
        wanted = body_of(request, UserChangeSerializer)
        user, caller = users.get(username), person(request)
        if "role" in wanted:
            role = Role(wanted["role"]) if wanted["role"] else None
            users.set_role(user, role, by=caller)
        if "is_active" in wanted:
            users.set_active(user, wanted["is_active"], by=caller)
        return Response(UserSerializer(user).data)


class UserPasswordView(APIView):
    permission_classes = (IsSuperuser,)
    throttle_classes = (SetPasswords,)

    @extend_schema(
        operation_id="users_reset_password",
        request=PasswordRequestSerializer,
        responses=PasswordSerializer,
    )
    def post(self, request: Request, username: str) -> Response:
        """Set a password; the tokens of the account are revoked, and its sessions end."""
        wanted = body_of(request, PasswordRequestSerializer)
        user = users.get(username)
        password = users.reset_password(user, wanted["password"], by=person(request))
        return Response({"username": user.username, "password": password})


class UserSecondFactorView(APIView):
    permission_classes = (IsSuperuser,)

    @extend_schema(operation_id="users_second_factor_remove", responses={200: MessageSerializer})
    def delete(self, request: Request, username: str) -> Response:
        """Remove the second factor of another account, whose owner has lost it."""
        users.remove_second_factor(users.get(username), by=person(request))
        return Response({"message": f"The second factor of {username} was removed."})


class UserTokensView(APIView):
    permission_classes = (IsSuperuser,)

    @extend_schema(operation_id="users_tokens_list", responses=TokenSerializer(many=True))
    def get(self, request: Request, username: str) -> Response:
        """List the tokens of an account, without their secrets."""
        rows = Token.objects.filter(user=users.get(username))
        return Response(TokenSerializer(rows, many=True, context={"request": request}).data)

    @extend_schema(
        operation_id="users_tokens_create",
        request=NewTokenRequestSerializer,
        responses={201: NewTokenSerializer},
    )
    def post(self, request: Request, username: str) -> Response:
        """Create a token of a service account; the response shows its secret only once."""
        wanted = body_of(request, NewTokenRequestSerializer)
        user = users.get(username)
        if not users.is_service(user):
            raise users.NoServiceAccount(user.username)
        token = tokens.create_wanted(user, wanted)
        return Response(NewTokenSerializer(token, context={"request": request}).data, status=201)


class UserTokenView(APIView):
    permission_classes = (IsSuperuser,)

    @extend_schema(operation_id="users_tokens_revoke", responses={200: MessageSerializer})
    def delete(self, request: Request, username: str, token_id: str) -> Response:
        """Revoke a token of an account."""
        user = users.get(username)
        if not tokens.revoke(Token.objects.filter(user=user, public_id=token_id)):
            raise tokens.TokenNotFound(f"{user.username} has no token", token_id)
        return Response({"message": f"Token {token_id} was revoked."})
