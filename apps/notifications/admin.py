"""Notification rules in the admin: edited by administrators, with a test and their deliveries."""

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from apps.notifications import services
from apps.notifications.models import Delivery, Rule
from trainops.admin_base import ReadOnlyAdmin, button, id_in
from trainops.http.asking import person
from trainops.http.roles import Role, has_role


def _number_in(address_part: str) -> int:
    try:
        return int(id_in(address_part))
    except ValueError:
        raise Http404(f"got {address_part[:40]!r}; allowed: a number") from None


@admin.register(Rule)
class RuleAdmin(ReadOnlyAdmin):
    list_display = ("name", "user", "channel", "target", "condition", "is_active")
    list_select_related = ("user",)
    search_fields = ("name", "target")
    readonly_fields = ("user", "secret", "created_at")
    actions_detail = ("send_test",)
    fieldsets = (
        (None, {"fields": ("name", "channel", "target", "is_active")}),
        (
            "Sent when an operation is",
            {"fields": (("on_failed", "on_cancelled", "on_completed", "on_attention"),)},
        ),
        ("Alert on a metric", {"fields": ("condition", "metric", "mode", "points")}),
        ("Only operations of", {"fields": (("kind", "owner", "reason", "tag", "project"),)}),
        ("Digest", {"fields": ("digest_hour",)}),
    )
    signature = ("Signature", {"fields": ("user", "secret", "created_at")})

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the form; the secret is known once the rule is saved."""
        return self.fieldsets if obj is None else (*self.fieldsets, self.signature)

    def save_model(self, request: Any, obj: Rule, form: Any, change: bool) -> None:
        if change:
            services.update(obj, **{name: form.cleaned_data[name] for name in form.changed_data})
        else:
            obj.user = person(request)
            services.save(obj)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_role(request.user, Role.ADMIN)  # the secret is shown

    has_module_permission = has_view_permission
    has_add_permission = has_view_permission
    has_change_permission = has_view_permission
    has_delete_permission = has_view_permission

    @button(
        "Send a test",
        may="send_test",
        icon="send",
        question="Send a test notification?",
        consequence="It is sent within seconds; the result is in the list of deliveries.",
        submit="Send it",
    )
    def send_test(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def sent() -> str:
            rule = services.get(_number_in(object_id), person(request))  # type: ignore[arg-type]
            services.test(rule)
            return f"A test of {rule.name} is waiting to be sent."

        deliveries = reverse("admin:notifications_delivery_changelist")
        return self.carried_out(request, deliveries, sent)

    def has_send_test_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return has_role(request.user, Role.ADMIN)


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = (
        "what",
        "operation_id",
        "rule",
        "status",
        "num_tries",
        "response_status",
        "next_at",
    )
    list_filter = ("status", "rule")
    list_select_related = ("rule",)
    search_fields = ("operation_id",)
    actions_detail = ("retry",)

    @button(
        "Retry",
        may="retry",
        icon="replay",
        question="Send this notification again?",
        consequence="It is sent within seconds, and retried for a day if that fails.",
        submit="Send it",
    )
    def retry(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def retried() -> str:
            services.retry(_number_in(object_id), person(request))  # type: ignore[arg-type]
            return "The notification is waiting to be sent."

        return self.carried_out(request, self.address_of_list(), retried)

    def has_retry_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return has_role(request.user, Role.ADMIN)
