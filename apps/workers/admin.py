"""Workers in the admin: how they are, and the button to drain them."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.safestring import SafeString

from apps.workers import registry
from apps.workers.badges import status_badge
from apps.workers.models import Worker
from trainops.admin_base import ReadOnlyAdmin, button, column, id_in
from trainops.admin_bulk import BulkAction
from trainops.http.roles import Role, has_role

DRAIN = "The worker finishes its operations and accepts no new ones."
UNDRAIN = "The worker claims the next waiting operation that it serves."


def _drain(request: HttpRequest, worker: Worker) -> None:
    registry.drain(worker_id=worker.pk, reason=registry.drained_by(request.user.get_username()))


BULK = (
    BulkAction(
        "Drain",
        may="administer",
        consequence=DRAIN,
        refusal=lambda request, row: "it is draining" if row.is_draining else "",
        carry_out=_drain,
    ),
    BulkAction(
        "Undrain",
        may="administer",
        consequence=UNDRAIN,
        refusal=lambda request, row: "" if row.is_draining else "it accepts work",
        carry_out=lambda request, row: registry.undrain(worker_id=row.pk),
    ),
)


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("worker_id", "status", "host", "num_running", "slots", "heartbeat_at")
    list_filter = ("worker_type", "is_draining")
    search_fields = ("worker_id", "host")
    actions = BULK
    actions_detail = ("drain", "undrain")
    fieldsets = (
        (
            None,
            {"fields": (("worker_id", "worker_type"), ("status", "is_draining"), "drain_reason")},
        ),
        (
            "Where",
            {
                "fields": (
                    ("host", "pid", "endpoint_url"),
                    "capabilities",
                    ("storage_free_bytes", "storage_problem", "dataset_problem"),
                )
            },
        ),
        (
            "Work",
            {
                "fields": (
                    ("slots", "num_running"),
                    ("kinds", "labels"),
                    "current_operation_id",
                    "last_error",
                )
            },
        ),
        (
            "Life",
            {"fields": (("registered_at", "heartbeat_at"), ("ends_at", "idle_exit_seconds"))},
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return Worker.objects.with_status().order_by("worker_id")

    @column(description="Status")
    def status(self, worker: Any) -> SafeString:
        return status_badge(worker.status)

    @button(
        "Drain",
        may="drain",
        icon="pause_circle",
        question="Drain this worker?",
        consequence=DRAIN,
        submit="Drain the worker",
    )
    def drain(self, request: HttpRequest, form: object, object_id: str) -> HttpResponseBase:
        def done() -> str:
            name = id_in(object_id)
            registry.drain(worker_id=name, reason=registry.drained_by(request.user.get_username()))
            return f"{name} is draining."

        return self._carried_out(request, object_id, done)

    @button(
        "Resume work",
        may="undrain",
        icon="play_circle",
        question="Let this worker accept work again?",
        consequence=UNDRAIN,
        submit="Resume work",
    )
    def undrain(self, request: HttpRequest, form: object, object_id: str) -> HttpResponseBase:
        def done() -> str:
            registry.undrain(worker_id=id_in(object_id))
            return f"{id_in(object_id)} accepts work again."

        return self._carried_out(request, object_id, done)

    def _carried_out(
        self, request: HttpRequest, object_id: str, done: Callable[[], str]
    ) -> HttpResponseBase:
        return self.carried_out(request, self.address_of(id_in(object_id)), done)

    def has_drain_permission(self, request: HttpRequest, object_id: object = None) -> bool:
        return _may(request, object_id, is_draining=False)

    def has_undrain_permission(self, request: HttpRequest, object_id: object = None) -> bool:
        return _may(request, object_id, is_draining=True)


def _may(request: HttpRequest, object_id: object, *, is_draining: bool) -> bool:
    known = Worker.objects.filter(pk=id_in(object_id), is_draining=is_draining)
    return has_role(request.user, Role.ADMIN) and known.exists()
