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
from apps.operations.files import verification
from apps.operations.ids import is_subtask
from apps.operations.lifecycle import ACTIVE
from apps.operations.requests import access, deletion
from trainops.admin_base import ReadOnlyAdmin, button, column, id_in
from trainops.admin_bulk import BulkAction
from trainops.errors import DomainError
from trainops.http.roles import Role, has_role

VERIFY = (
    "Compares every byte with what was saved and loads the checkpoint as a resume does. A mismatch "
    "marks it as corrupted."
)
PIN = "Neither retention nor cleanup deletes it until it is unpinned."
UNPIN = "Retention and cleanup may delete it again."
DELETE = "Deletes the checkpoint's files. Without checkpoints, the operation cannot be resumed."
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


def _refusal(request: HttpRequest, checkpoint: Checkpoint) -> str:
    owner = checkpoint.operation.owner
    if access.may_change(checkpoint.operation.owner_id, request.user):
        return ""
    return f"it belongs to {owner.get_username() if owner else 'a deleted user'}"


def _refusal_of_delete(request: HttpRequest, checkpoint: Checkpoint) -> str:
    if is_subtask(checkpoint.operation_id):
        return "the parent of its operation manages it"
    if checkpoint.operation.state in ACTIVE:
        return f"its operation is {checkpoint.operation.state.lower()}"
    return _refusal(request, checkpoint)


def _verify(request: HttpRequest, checkpoint: Checkpoint) -> str:
    found = verification.verify(checkpoint, person=request.user.get_username())
    if found.level == "failed":
        raise DomainError("CHECKPOINT_CORRUPTED", found.message)
    return found.message


def _delete(request: HttpRequest, checkpoint: Checkpoint) -> str:
    done = deletion.delete_checkpoints(
        operation_id=checkpoint.operation_id,
        actor=cast(User, request.user),
        checkpoint_id=checkpoint.pk,
    )
    return f"Deleted: {filesizeformat(done.freed.freed_bytes)} freed."


BULK = (
    BulkAction(
        "Verify",
        may="operate",
        consequence=VERIFY,
        refusal=lambda request, row: "",
        carry_out=_verify,
    ),
    BulkAction(
        "Pin",
        may="operate",
        consequence=PIN,
        refusal=lambda request, row: "it is pinned" if row.pinned else _refusal(request, row),
        carry_out=lambda request, row: checkpoints.pin(row.pk, pinned=True),
    ),
    BulkAction(
        "Unpin",
        may="operate",
        consequence=UNPIN,
        refusal=lambda request, row: _refusal(request, row) if row.pinned else "it is not pinned",
        carry_out=lambda request, row: checkpoints.pin(row.pk, pinned=False),
    ),
    BulkAction(
        "Delete",
        may="operate",
        consequence=DELETE,
        refusal=_refusal_of_delete,
        carry_out=_delete,
        is_dangerous=True,
    ),
)


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnlyAdmin):
    list_display = (
        "id",
        "shown_type",
        "shown_health",
        "step",
        "size",
        "metric",
        "shown_best",
        "shown_pinned",
        "created_at",
    )
    list_filter = ("type", "health", "pinned", "is_best", "created_at")
    search_fields = ("id", "operation__id")
    ordering = ("-created_at", "-id")
    actions = BULK
    list_select_related = ("operation__owner",)
    actions_detail = ("verify", "pin", "unpin", "remove")
    fieldsets = (
        (None, {"fields": (("operation", "attempt", "step"), ("shown_type", "created_at"))}),
        (
            "Health",
            {"fields": (("shown_health", "shown_pinned", "shown_best", "best_of"), "problem")},
        ),
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

    @column(description="Best", label={"best": "success"}, ordering="is_best")
    def shown_best(self, checkpoint: Checkpoint) -> str:
        return "best" if checkpoint.is_best else ""

    @column(description="Pinned", label={"pinned": "info"}, ordering="pinned")
    def shown_pinned(self, checkpoint: Checkpoint) -> str:
        return "pinned" if checkpoint.pinned else ""

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
        consequence=VERIFY,
        submit="Verify the checkpoint",
    )
    def verify(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def done() -> str:
            return _verify(request, Checkpoint.objects.get(pk=id_in(object_id)))

        return self.carried_out(request, self.address_of(id_in(object_id)), done)

    @button(
        "Pin",
        may="pin",
        icon="keep",
        question="Pin this checkpoint?",
        consequence=PIN,
        submit="Pin the checkpoint",
    )
    def pin(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        return self._pin(request, object_id, pinned=True)

    @button(
        "Unpin",
        may="unpin",
        icon="keep_off",
        question="Unpin this checkpoint?",
        consequence=UNPIN,
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
        consequence=DELETE,
        submit="Delete the checkpoint",
        variant=ActionVariant.DANGER,
    )
    def remove(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def removed() -> str:
            return _delete(request, Checkpoint.objects.get(pk=id_in(object_id)))

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
    return not is_idle or (
        found.operation.state not in ACTIVE and not is_subtask(found.operation_id)
    )
