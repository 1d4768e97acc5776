"""Shares in the admin: edited by administrators."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from apps.operations.models import Share
from apps.operations.requests import shares
from trainops.admin_base import ReadOnlyAdmin
from trainops.http.roles import Role, has_role


class ShareForm(forms.ModelForm):  # type: ignore[type-arg] # at run time it takes none
    def clean(self) -> dict[str, Any]:
        """Raise ValidationError where a share of an owner has members."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        has_members = bool(cleaned.get("members_only") or cleaned.get("members"))
        project = cleaned.get("project", "").strip()
        shares.require_project_of_members(Share(project=project, members_only=has_members))
        return cleaned


@admin.register(Share)
class ShareAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "weight", "max_slots", "max_gpus", "gpu_hours_per_week")
    list_select_related = ("owner",)
    search_fields = ("owner__username", "project")
    ordering = ("owner__username", "project")
    fields = (
        "owner", "project", "members_only", "members", "preemptible", "weight", "max_slots",
        "max_gpus", "gpu_hours_per_week", "budget_gpu_hours", "budget_compute_hours",
        "budget_period", "max_checkpoint_bytes",
    )  # fmt: skip
    form = ShareForm
    filter_horizontal = ("members",)

    def save_model(self, request: HttpRequest, obj: Share, form: Any, change: bool) -> None:
        shares.save(obj, form.cleaned_data["members"])

    def delete_model(self, request: HttpRequest, obj: Share) -> None:
        shares.delete(obj)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_role(request.user, Role.ADMIN)

    has_change_permission = has_add_permission
    has_delete_permission = has_add_permission
