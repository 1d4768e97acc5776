"""Workers in the admin: how they are, and the button to drain them."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from apps.workers import registry
from apps.workers.models import Worker
from trainops.backoffice import LooksOnlyAdmin, button, column, id_in
from trainops.http.roles import Role, has_role

COLOURS = {
    Worker.Status.AVAILABLE: "success",
    Worker.Status.BUSY: "primary",
    Worker.Status.DRAINING: "warning",
    Worker.Status.TEMPORARILY_UNAVAILABLE: "warning",
    Worker.Status.GONE: "danger",
}


@admin.register(Worker)
class WorkerAdmin(LooksOnlyAdmin):
    list_display = ("worker_id", "status", "host", "num_running", "slots", "heartbeat_at")
    list_filter = ("worker_type", "is_draining")
    search_fields = ("worker_id", "host")
    actions_detail = ("drain", "undrain")
    fieldsets = (
        (
            None,
            {"fields": (("worker_id", "worker_type"), ("status", "is_draining"), "drain_reason")},
        ),
        (
            "Where",
            {"fields": (("host", "pid", "endpoint_url"), "capabilities", "storage_free_bytes")},
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
        ("Life", {"fields": (("registered_at", "heartbeat_at"),)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return Worker.objects.with_status().order_by("worker_id")

    @column(description="Status", label=COLOURS)
    def status(self, worker: Any) -> str:
        return str(worker.status)

    @button(
        "Drain",
        may="drain",
        icon="pause_circle",
        question="Drain this worker?",
        consequence="It finishes what it runs and takes nothing new.",
        submit="Drain the worker",
    )
    def drain(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def done() -> str:
            name = id_in(object_id)
            registry.drain(worker_id=name, reason=f"by {request.user.get_username()}")
            return f"{name} is draining."

        return self._carried_out(request, object_id, done)

    @button(
        "Take work again",
        may="undrain",
        icon="play_circle",
        question="Have this worker take work again?",
        consequence="It claims the next waiting operation that it serves.",
        submit="Take work again",
    )
    def undrain(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponseBase:
        def done() -> str:
            registry.undrain(worker_id=id_in(object_id))
            return f"{id_in(object_id)} takes work again."

        return self._carried_out(request, object_id, done)

    def _carried_out(
        self, request: HttpRequest, object_id: str, done: Callable[[], str]
    ) -> HttpResponseBase:
        return self.carried_out(request, self.address_of(id_in(object_id)), done)

    def has_drain_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return _may(request, object_id, is_draining=False)

    def has_undrain_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return _may(request, object_id, is_draining=True)


def _may(request: HttpRequest, object_id: Any, *, is_draining: bool) -> bool:
    known = Worker.objects.filter(pk=id_in(object_id), is_draining=is_draining)
    return has_role(request.user, Role.ADMIN) and known.exists()
