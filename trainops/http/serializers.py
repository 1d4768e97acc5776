"""What goes in and out of the token endpoints, and the strictness that all bodies share."""

import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NotRequired, TypeAlias, TypedDict

from django.utils import timezone
from rest_framework import serializers

from trainops.errors import MAX_PROBLEMS
from trainops.http.models import Token, TokenScope
from trainops.text import name_problem

AnyField: TypeAlias = "serializers.Field[Any, Any, Any, Any]"


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses fields that it does not know, and names those it does: a typo is never ignored."""

    def to_internal_value(self, data: object) -> object:
        if isinstance(data, Mapping):
            known = [name for name, field in self.known_fields().items() if not field.read_only]
            if unknown := [str(name) for name in data if name not in known]:
                allowed = ", ".join(known) or "none"
                problem = f"unknown field; allowed: {allowed}"
                problems = {name[:60]: problem for name in unknown[:MAX_PROBLEMS]}
                if (num_more := len(unknown) - MAX_PROBLEMS) > 0:
                    problems["non_field_errors"] = f"{num_more} more unknown fields"
                raise serializers.ValidationError(problems)
        return super().to_internal_value(data)

    def known_fields(self) -> Mapping[str, AnyField]:
        return self.fields


class FewOfManySerializer(StrictSerializer):
    """For many declared fields of which few are given: the others are not copied."""

    def get_fields(self) -> dict[str, AnyField]:
        data = getattr(self, "initial_data", None)
        if not isinstance(data, Mapping):
            return super().get_fields()
        return {
            name: copy.deepcopy(field)
            for name, field in self._declared_fields.items()
            if name in data or field.required or field.default is not serializers.empty
        }

    def known_fields(self) -> Mapping[str, AnyField]:
        return self._declared_fields


class TokenRequest(TypedDict):
    """What `TokenRequestSerializer` validated."""

    username: NotRequired[str]
    password: NotRequired[str]
    code: NotRequired[str]
    name: str
    scope: str
    expires_at: datetime | None


class NewTokenRequestSerializer(StrictSerializer):
    """A token that is wanted."""

    name = serializers.CharField(
        max_length=100, required=False, default="", allow_blank=True, help_text="Display name."
    )
    scope = serializers.ChoiceField(
        choices=TokenScope.choices,
        default=TokenScope.USER.value,
        error_messages={
            "invalid_choice": f"{{input!r}} is not a scope; allowed: {', '.join(TokenScope.values)}"
        },
    )
    expires_at = serializers.DateTimeField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Expiry time; by default the token never expires.",
    )

    def validate_name(self, value: str) -> str:
        if problem := name_problem(value):
            raise serializers.ValidationError(problem)
        return value

    def validate_expires_at(self, value: datetime | None) -> datetime | None:
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError(f"{value.isoformat()} is in the past")
        return value


class TokenRequestSerializer(NewTokenRequestSerializer):
    """Who is not signed in adds `username` and `password`."""

    username = serializers.CharField(max_length=150, required=False)
    password = serializers.CharField(
        max_length=1000, required=False, trim_whitespace=False, style={"input_type": "password"}
    )
    code = serializers.CharField(
        max_length=40,
        required=False,
        help_text="Code of the authenticator app, or a recovery code; accounts with a second "
        "factor only.",
    )

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        if ("username" in attrs) != ("password" in attrs):
            missing = "password" if "username" in attrs else "username"
            raise serializers.ValidationError(
                {missing: "username and password must be given together"}
            )
        if "code" in attrs and "password" not in attrs:
            raise serializers.ValidationError({"code": "allowed with username and password only"})
        return attrs


class TokenSerializer(serializers.ModelSerializer[Token]):
    token_id = serializers.CharField(source="public_id", read_only=True)
    created_at = serializers.DateTimeField(source="created", read_only=True)
    expires_at = serializers.DateTimeField(source="expiry", read_only=True, allow_null=True)
    is_current = serializers.SerializerMethodField(
        help_text="Whether this token authenticates the request."
    )

    class Meta:
        model = Token
        fields = [
            "token_id", "name", "scope", "created_at", "expires_at", "last_used_at",
            "last_used_from", "is_current",
        ]  # fmt: skip
        read_only_fields = fields

    def get_is_current(self, token: Token) -> bool:
        auth = self.context["request"].auth
        return isinstance(auth, Token) and auth.pk == token.pk


class NewTokenSerializer(TokenSerializer):
    token = serializers.CharField(read_only=True, help_text="Token; shown only once.")

    class Meta(TokenSerializer.Meta):
        fields = ["token", *TokenSerializer.Meta.fields]
        read_only_fields = fields


class MessageSerializer(serializers.Serializer[Any]):
    """What a deletion answers with."""

    message = serializers.CharField(read_only=True)


class MeSerializer(serializers.Serializer[Any]):
    username = serializers.CharField(read_only=True)
    email = serializers.CharField(read_only=True)
    role = serializers.ChoiceField(
        choices=["viewer", "operator", "admin"], read_only=True, allow_null=True
    )
    is_superuser = serializers.BooleanField(read_only=True)
    token_id = serializers.CharField(
        read_only=True, allow_null=True, help_text="Id of the token; null for a browser session."
    )
