"""People, roles and tokens in the admin; and nothing of the libraries that is ours to decide.

Beat's schedule is code (trainops/celery.py) that is written into its tables at every start; a form
for it would promise what the next start takes back.
"""

from typing import cast

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from unfold.admin import ModelAdmin
from unfold.enums import ActionVariant
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from trainops.admin_base import (
    CallsServices,
    FilteredByTime,
    ReadOnlyAdmin,
    button,
    column,
    id_in,
)
from trainops.http import tokens, users
from trainops.http.models import AuditEntry, Identity, Token
from trainops.http.numbers import whole_number
from trainops.http.oidc import accounts
from trainops.http.roles import Role, has_role

for app in ("knox", "django_celery_beat"):
    for model in apps.get_app_config(app).get_models():
        if admin.site.is_registered(model):
            admin.site.unregister(model)
admin.site.unregister([User, Group])
if admin.site.is_registered(Token):  # knox registers whatever is its token model
    admin.site.unregister(Token)


MAX_ID = 2**63 - 1


def _number(object_id: str) -> int:
    """Return the id in an address; 0: it is none."""
    return whole_number(id_in(object_id), 1, MAX_ID) or 0


@admin.register(User)
class UserAdmin(FilteredByTime, CallsServices, DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg] # at run time it takes none
    """Roles are groups; `is_staff` opens the admin."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = (
        "username", "email", "is_staff", "is_active", "has_second_factor", "last_login",
    )  # fmt: skip
    list_filter = ("groups", "is_staff", "is_superuser", "is_active")
    list_select_related = ("second_factor",)
    compressed_fields = True
    actions_detail = ("remove_second_factor",)

    @column(description="Second factor", boolean=True)
    def has_second_factor(self, user: User) -> bool:
        return hasattr(user, "second_factor")

    @button(
        "Remove second factor",
        may="remove_second_factor",
        icon="phonelink_erase",
        question="Remove the second factor of this user?",
        consequence="The password alone is then enough to sign in, until another one is set up.",
        submit="Remove the second factor",
        variant=ActionVariant.DANGER,
    )
    def remove_second_factor(
        self, request: HttpRequest, form: object, object_id: str
    ) -> HttpResponseBase:
        def removed() -> str:
            user = User.objects.filter(pk=_number(object_id)).first()
            if user is None:
                raise users.UserNotFound(id_in(object_id))
            users.remove_second_factor(user, by=cast("User", request.user))
            return "Second factor removed."

        return self.carried_out(request, self.address_of(object_id), removed)

    def has_remove_second_factor_permission(
        self, request: HttpRequest, object_id: object = None
    ) -> bool:
        return bool(getattr(request.user, "is_superuser", False))


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    pass


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    """Tokens are made by their owners; an admin sees who has which, and revokes."""

    list_display = (
        "public_id", "name", "user", "scope", "worker_id", "created", "expiry", "last_used_at",
    )  # fmt: skip
    list_filter = ("scope",)
    list_select_related = ("user",)
    search_fields = ("public_id", "name", "user__username")
    ordering = ("-created",)
    fields = (
        "public_id", "name", "user", "scope", "worker_id", "created", "expiry", "last_used_at",
        "last_used_from",
    )  # fmt: skip
    actions_detail = ("revoke",)

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return has_role(request.user, Role.ADMIN)

    @button(
        "Revoke",
        may="revoke",
        icon="key_off",
        question="Revoke this token?",
        consequence="Requests with this token are refused from now on.",
        submit="Revoke the token",
        variant=ActionVariant.DANGER,
    )
    def revoke(self, request: HttpRequest, form: object, object_id: str) -> HttpResponseBase:
        def revoked() -> str:
            tokens.revoke(Token.objects.filter(pk=id_in(object_id)))
            return "Token revoked."

        return self.carried_out(request, self.address_of_list(), revoked)

    def has_revoke_permission(self, request: HttpRequest, object_id: object = None) -> bool:
        return has_role(request.user, Role.ADMIN)


@admin.register(Identity)
class IdentityAdmin(ReadOnlyAdmin):
    """Which people of a provider sign in to which accounts."""

    list_display = ("user", "issuer", "subject", "created_at", "last_used_at")
    list_filter = ("issuer",)
    list_select_related = ("user",)
    search_fields = ("user__username", "subject")
    ordering = ("user__username", "id")
    fields = ("user", "issuer", "subject", "created_at", "last_used_at")
    actions_detail = ("disconnect",)

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return has_role(request.user, Role.ADMIN)

    @button(
        "Disconnect",
        may="disconnect",
        icon="link_off",
        question="Disconnect this person from the account?",
        consequence="The person can no longer sign in to the account by the provider.",
        submit="Disconnect",
        variant=ActionVariant.DANGER,
    )
    def disconnect(self, request: HttpRequest, form: object, object_id: str) -> HttpResponseBase:
        def disconnected() -> str:
            accounts.unlink(Identity.objects.filter(pk=_number(object_id)))
            return "Disconnected."

        return self.carried_out(request, self.address_of_list(), disconnected)

    def has_disconnect_permission(self, request: HttpRequest, object_id: object = None) -> bool:
        return bool(getattr(request.user, "is_superuser", False))


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """What was done to accounts, tokens and stored work; exported by `users log`."""

    list_display = ("created_at", "event", "actor", "address", "about")
    list_filter = ("event", "created_at")
    search_fields = ("actor", "address")
    search_help_text = "Part of the username or address"
    ordering = ("-created_at", "-id")

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return has_role(request.user, Role.ADMIN)

    @column(description="Details")
    def about(self, entry: AuditEntry) -> str:
        return ", ".join(f"{name}: {value}" for name, value in entry.details.items())
