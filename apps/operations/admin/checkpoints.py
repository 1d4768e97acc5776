"""Checkpoints in the admin. They stand here, since deleting one asks its operation first."""

from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.defaultfilters import filesizeformat
from unfold.enums import ActionVariant

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations import verification
from apps.operations.ids import is_part
from apps.operations.lifecycle import ACTIVE
from apps.operations.requests import access, services
from trainops.backoffice import LooksOnlyAdmin, button, column, id_in
from trainops.errors import Refusal
from trainops.http.roles import Role, has_role

TYPES = {
    Checkpoint.Type.PERIODIC: "info",
    Checkpoint.Type.CANCELLATION: "warning",
    Checkpoint.Type.FAILURE: "danger",
    Checkpoint.Type.SHUTDOWN: "info",
    Checkpoint.Type.FINAL: "success",
}
HEALTH = {
    Checkpoint.Health.HEALTHY: "success",
    Checkpoint.Health.UNAVAILABLE: "warning",
    Checkpoint.Health.CORRUPTED: "danger",
}


@admin.register(Checkpoint)
class CheckpointAdmin(LooksOnlyAdmin):
    list_display = (
        "id",
        "shown_type",
        "shown_health",
        "step",
        "size",
        "metric",
        "is_best",
        "pinned",
        "created_at",
    )
    list_filter = ("type", "health", "pinned", "is_best", "created_at")
    search_fields = ("id", "operation__id")
    ordering = ("-created_at", "-id")
    actions_detail = ("verify", "pin", "unpin", "remove")
    fieldsets = (
        (None, {"fields": (("operation", "attempt", "step"), ("shown_type", "created_at"))}),
        ("Health", {"fields": (("shown_health", "pinned", "is_best"), "problem")}),
        (
            "Files",
            {
                "fields": (
                    ("size", "state_size_bytes"),
                    ("artifacts_path", "format_version"),
                    "manifest",
                    "manifest_digest",
                )
            },
        ),
        ("State", {"classes": ("tab",), "fields": ("metric", "state")}),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        """A state can be large; the list shows none of it."""
        return super().get_queryset(request).defer("state", "manifest")

    @column(description="Type", label=TYPES, ordering="type")
    def shown_type(self, checkpoint: Checkpoint) -> str:
        return checkpoint.type

    @column(description="Health", label=HEALTH, ordering="health")
    def shown_health(self, checkpoint: Checkpoint) -> str:
        return checkpoint.health

    @column(description="Size", ordering="artifacts_size_bytes")
    def size(self, checkpoint: Checkpoint) -> str:
        return filesizeformat(checkpoint.artifacts_size_bytes)

    @button(
        "Verify",
        may="verify",
        icon="fact_check",
        question="Verify this checkpoint?",
        consequence="Every byte is compared with what was saved, and a process loads it as a "
        "resume does. A wrong byte marks it corrupted.",
        submit="Verify the checkpoint",
    )
    def verify(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def done() -> str:
            checkpoint = Checkpoint.objects.get(pk=id_in(object_id))
            found = verification.verify(checkpoint, person=request.user.get_username())
            if found.level == "failed":
                raise Refusal("CHECKPOINT_CORRUPTED", found.message)
            return found.message

        return self.carried_out(request, self.address_of(id_in(object_id)), done)

    @button(
        "Pin",
        may="pin",
        icon="keep",
        question="Pin this checkpoint?",
        consequence="Neither retention nor the clean-up deletes it until it is unpinned.",
        submit="Pin the checkpoint",
    )
    def pin(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        return self._pin(request, object_id, pinned=True)

    @button(
        "Unpin",
        may="unpin",
        icon="keep_off",
        question="Unpin this checkpoint?",
        consequence="Retention and the clean-up may delete it again.",
        submit="Unpin the checkpoint",
    )
    def unpin(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        return self._pin(request, object_id, pinned=False)

    def _pin(self, request: HttpRequest, object_id: str, *, pinned: bool) -> HttpResponseBase:
        def done() -> str:
            checkpoints.pin(id_in(object_id), pinned=pinned)
            return f"{id_in(object_id)} is {'pinned' if pinned else 'no longer pinned'}."

        return self.carried_out(request, self.address_of(id_in(object_id)), done)

    @button(
        "Delete",
        may="remove",
        icon="delete",
        question="Delete this checkpoint?",
        consequence="Its files are deleted. Without any, the operation cannot be resumed.",
        submit="Delete the checkpoint",
        variant=ActionVariant.DANGER,
    )
    def remove(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def removed() -> str:
            checkpoint = Checkpoint.objects.get(pk=id_in(object_id))
            done = services.delete_checkpoints(
                operation_id=checkpoint.operation_id,
                actor=cast(User, request.user),
                checkpoint_id=id_in(object_id),
            )
            return f"Deleted: {filesizeformat(done.freed.freed_bytes)} freed."

        return self.carried_out(request, self.address_of_list(), removed)

    def has_verify_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return has_role(request.user, Role.OPERATOR)

    def has_pin_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return _mine(request, object_id, pinned=False)

    def has_unpin_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return _mine(request, object_id, pinned=True)

    def has_remove_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return _mine(request, object_id, is_idle=True)


def _mine(
    request: HttpRequest, object_id: Any, *, pinned: bool | None = None, is_idle: bool = False
) -> bool:
    """Whether the caller may change this checkpoint's operation, and the button makes sense."""
    found = Checkpoint.objects.filter(pk=id_in(object_id)).select_related("operation").first()
    if found is None or not access.may_change(found.operation.owner_id, request.user):
        return False
    if pinned is not None and found.pinned != pinned:
        return False
    return not is_idle or (found.operation.state not in ACTIVE and not is_part(found.operation_id))
