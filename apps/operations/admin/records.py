"""What operations leave behind, in the admin: attempts, events, points, logs, tags; and studies."""

from django.contrib import admin

from apps.operations.models import Attempt, Event, LogChunk, MetricPoint, Study, Tag
from trainops.admin_base import ReadOnlyAdmin, ReadOnlyInline, column

OUTCOMES = {
    Attempt.Outcome.RUNNING: "primary",
    Attempt.Outcome.COMPLETED: "success",
    Attempt.Outcome.CANCELLED: "warning",
    Attempt.Outcome.FAILED: "danger",
    Attempt.Outcome.PREEMPTED: "info",
    Attempt.Outcome.LOST: "danger",
}
BEGINNING_CHARS = 120


class AttemptInline(ReadOnlyInline):
    model = Attempt
    fields = (
        "number",
        "outcome",
        "reason",
        "worker_id",
        "device",
        "started_at",
        "ended_at",
        "from_step",
        "to_step",
    )
    ordering = ("-number",)


class EventInline(ReadOnlyInline):
    model = Event
    fields = ("at", "what", "actor", "note", "attempt")
    ordering = ("-id",)


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
    list_display = (
        "__str__",
        "shown_outcome",
        "reason",
        "worker_id",
        "started_at",
        "ended_at",
        "to_step",
    )
    list_filter = ("outcome", "reason", "started_at")
    search_fields = ("operation__id", "worker_id", "host")
    ordering = ("-id",)

    @column(description="Outcome", label=OUTCOMES, ordering="outcome")
    def shown_outcome(self, attempt: Attempt) -> str:
        return attempt.outcome


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("at", "what", "operation_id", "actor", "note", "attempt")
    list_filter = ("at",)
    search_fields = ("operation__id", "actor", "what")
    ordering = ("-id",)


@admin.register(MetricPoint)
class MetricPointAdmin(ReadOnlyAdmin):
    list_display = ("operation_id", "name", "step", "attempt", "value", "not_finite", "retired_by")
    search_fields = ("operation__id__exact",)
    search_help_text = "Complete operation id"
    ordering = ("-id",)


@admin.register(LogChunk)
class LogChunkAdmin(ReadOnlyAdmin):
    list_display = ("operation_id", "attempt", "at", "beginning")
    search_fields = ("operation__id__exact",)
    search_help_text = "Complete operation id"
    ordering = ("-id",)

    @column(description="Text")
    def beginning(self, chunk: LogChunk) -> str:
        return chunk.text[:BEGINNING_CHARS]


@admin.register(Study)
class StudyAdmin(ReadOnlyAdmin):
    list_display = ("name", "id", "kind", "recipe", "owner", "num_planned", "metric", "created_at")
    list_filter = ("kind", "created_at")
    list_select_related = ("owner",)
    search_fields = ("id", "name")
    ordering = ("-created_at", "-id")


@admin.register(Tag)
class TagAdmin(ReadOnlyAdmin):
    list_display = ("name", "operation_id")
    search_fields = ("name", "operation__id")
    ordering = ("name", "id")
