"""Operations in the admin: looked at closely; cancelled, killed, resumed, deleted by services."""

from collections.abc import Callable
from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.enums import ActionVariant

from apps.operations.admin.records import AttemptInline, EventInline
from apps.operations.admin.resume_form import ResumeForm
from apps.operations.badges import badge, progress_bar, state_badge
from apps.operations.models import Operation, Subtask
from apps.operations.requests import access, deletion, services
from apps.operations.requests.access import Action
from apps.operations.scheduling import queue_status
from trainops.admin_base import ReadOnlyAdmin, button, column, id_in
from trainops.admin_bulk import BulkAction
from trainops.kind import KINDS
from trainops.recipes import recipes


class KindFilter(admin.SimpleListFilter):
    """Asks the registry which kinds there are; Django would ask every row."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, engine.label) for kind, engine in KINDS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Operation]) -> QuerySet[Operation]:
        wanted = self.value()
        return queryset.filter(**{self.parameter_name: wanted}) if wanted else queryset


class RecipeFilter(KindFilter):
    title = "recipe"
    parameter_name = "recipe"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, recipe.label) for name, recipe in sorted(recipes().items())]


def _bulk(
    action: Action, consequence: str, carry_out: Callable[..., object], *, is_dangerous: bool
) -> BulkAction:
    return BulkAction(
        action.value.capitalize(),
        may="operate",
        consequence=consequence,
        refusal=lambda request, row: access.why_not(action, row, request.user),
        carry_out=lambda request, row: carry_out(operation_id=row.pk, actor=_person(request)),
        is_dangerous=is_dangerous,
    )


BULK = (
    _bulk(
        Action.RESUME,
        "The next free workers continue from the latest checkpoints, verified first.",
        services.resume,
        is_dangerous=False,
    ),
    _bulk(
        Action.CANCEL,
        "What runs saves a checkpoint at its next safe point, then stops, and can be resumed. What "
        "waits stops at once, with the checkpoints it has.",
        services.cancel,
        is_dangerous=True,
    ),
    _bulk(
        Action.KILL,
        "They stop immediately. The work since their last checkpoints is lost.",
        services.kill,
        is_dangerous=True,
    ),
    _bulk(
        Action.DELETE,
        "Permanently deletes the operations with their checkpoints, curves and logs, including "
        "their subtasks.",
        deletion.delete,
        is_dangerous=True,
    ),
)


@admin.register(Operation)
class OperationAdmin(ReadOnlyAdmin):
    list_display = (
        "called",
        "shown_state",
        "progress",
        "kind",
        "recipe",
        "owner",
        "worker_id",
        "created_at",
    )
    list_filter = ("state", KindFilter, RecipeFilter, "reason", "created_at")
    list_select_related = ("owner",)
    search_fields = ("id", "name")
    search_help_text = "Part of the id or name"
    ordering = ("-created_at", "-id")
    inlines = (AttemptInline, EventInline)
    actions = BULK
    actions_detail = ("cancel", "resume", "kill", "remove")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("name", "kind", "recipe"),
                    ("shown_state", "reason"),
                    ("progress", "waits_for"),
                )
            },
        ),
        (
            "Progress",
            {"fields": (("step", "total_steps", "unit"), ("place", "steps_per_second"), "metrics")},
        ),
        (
            "User and time",
            {
                "fields": (
                    ("owner", "priority"),
                    ("created_at", "queued_at"),
                    ("started_at", "finished_at"),
                    ("stop_requested", "stop_requested_by", "stop_requested_at"),
                )
            },
        ),
        (
            "Placement",
            {
                "fields": (
                    ("queue", "device"),
                    ("gpu_memory_bytes", "memory_bytes", "checkpoint_bytes"),
                )
            },
        ),
        (
            "Attempt",
            {
                "fields": (
                    ("attempt", "worker_id", "lease_expires_at"),
                    ("restarts_used", "not_before", "resume_from"),
                )
            },
        ),
        ("Outcome", {"classes": ("tab",), "fields": ("result", "error")}),
        ("Config", {"classes": ("tab",), "fields": ("config", "config_given", "config_hash")}),
    )

    @column(description="Operation", header=True, ordering="name")
    def called(self, operation: Operation) -> tuple[str, str]:
        return operation.name, operation.pk

    @column(description="State", ordering="state")
    def shown_state(self, operation: Operation) -> SafeString:
        return state_badge(operation.state, operation.stop_requested)

    @column(description="Progress", ordering="step")
    def progress(self, operation: Operation) -> SafeString:
        colour = badge(operation.state, operation.stop_requested)[1]
        bar = progress_bar(operation.percent, colour, "Progress")
        return format_html('<span class="bar-line">{} {} %</span>', bar, f"{operation.percent:.0f}")

    @column(description="Waiting for")
    def waits_for(self, operation: Operation) -> str:
        wait = queue_status.of_operation(operation)
        return wait.message if wait else "-"

    @button(
        "Cancel",
        may="cancel",
        icon="stop_circle",
        question="Cancel this operation?",
        consequence="If it runs, it saves a checkpoint at its next safe point, then stops; if it "
        "waits, it stops immediately, with the checkpoints it has. It can be resumed.",
        submit="Cancel the operation",
    )
    def cancel(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def cancelled() -> str:
            return _message(services.cancel(operation_id=id_in(object_id), actor=_person(request)))

        return self.carried_out(request, self.address_of(id_in(object_id)), cancelled)

    @button(
        "Kill",
        may="kill",
        icon="dangerous",
        question="Kill this operation?",
        consequence="It stops immediately. The work since its last checkpoint is lost.",
        submit="Kill the operation",
        variant=ActionVariant.DANGER,
    )
    def kill(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def killed() -> str:
            return _message(services.kill(operation_id=id_in(object_id), actor=_person(request)))

        return self.carried_out(request, self.address_of(id_in(object_id)), killed)

    @button(
        "Resume",
        may="resume",
        icon="play_circle",
        question="Resume this operation?",
        consequence="The next free worker continues from the latest checkpoint, verified first.",
        submit="Resume the operation",
        variant=ActionVariant.PRIMARY,
        form_class=ResumeForm,
    )
    def resume(self, request: HttpRequest, form: ResumeForm, object_id: str) -> HttpResponseBase:
        def resumed() -> str:
            return services.resume(
                operation_id=id_in(object_id),
                actor=_person(request),
                accept_inexact=form.accepts_inexact,
            ).message

        return self.carried_out(request, self.address_of(id_in(object_id)), resumed)

    @button(
        "Delete",
        may="remove",
        icon="delete",
        question="Delete this operation?",
        consequence="Permanently deletes the operation with its checkpoints, curves and logs, "
        "including its subtasks.",
        submit="Delete the operation",
        variant=ActionVariant.DANGER,
    )
    def remove(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def removed() -> str:
            count = Subtask.objects.filter(parent_id=id_in(object_id)).count()
            freed = deletion.delete(operation_id=id_in(object_id), actor=_person(request))
            also = f" and {count} subtask{'' if count == 1 else 's'}" if count else ""
            return f"Deleted {id_in(object_id)} with {freed.num_checkpoints} checkpoints{also}."

        return self.carried_out(request, self.address_of_list(), removed)

    def has_cancel_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return _may(Action.CANCEL, request, object_id)

    def has_kill_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return _may(Action.KILL, request, object_id)

    def has_resume_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return _may(Action.RESUME, request, object_id)

    def has_remove_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return _may(Action.DELETE, request, object_id)


def _may(wanted: Action, request: HttpRequest, object_id: Any) -> bool:
    """The same rule as the API's: roles, ownership, state."""
    operation = Operation.objects.filter(pk=id_in(object_id)).first()
    return operation is not None and wanted in access.allowed_actions(operation, request.user)


def _person(request: HttpRequest) -> User:
    return cast(User, request.user)


def _message(operation: Operation) -> str:
    if operation.is_finished:
        return f"{operation} is {operation.state}."
    return f"Requested a stop of {operation}; it stops at its next safe point."
