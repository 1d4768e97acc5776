"""Shares in the admin: edited by administrators."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from apps.operations.models import Share
from apps.operations.requests import shares
from trainops.admin_base import ReadOnlyAdmin
from trainops.http.roles import Role, has_role


@admin.register(Share)
class ShareAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "weight", "max_slots", "max_gpus", "gpu_hours_per_week")
    list_select_related = ("owner",)
    search_fields = ("owner__username", "project")
    ordering = ("owner__username", "project")
    fields = ("owner", "project", "weight", "max_slots", "max_gpus", "gpu_hours_per_week")

    def save_model(self, request: HttpRequest, obj: Share, form: Any, change: bool) -> None:
        shares.save(obj)

    def delete_model(self, request: HttpRequest, obj: Share) -> None:
        shares.delete(obj)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_role(request.user, Role.ADMIN)

    has_change_permission = has_add_permission
    has_delete_permission = has_add_permission
