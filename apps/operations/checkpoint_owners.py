"""What `apps.checkpoints` asks about operations: see apps.checkpoints.owners."""

from collections.abc import Collection, Iterable

from django.db.models import Max, Q

from apps.checkpoints.models import Checkpoint
from apps.operations import concerns
from apps.operations.lifecycle import FINISHED, State
from apps.operations.models import Operation, Subtask
from apps.operations.models.queryset import OperationQuerySet


class Operations:
    """The rows of operations and their subtasks."""

    def lock(self, operation_ids: Iterable[str]) -> None:
        rows = Operation.objects.filter(pk__in=set(operation_ids)).order_by("pk")
        list(rows.select_for_update(no_key=True).values_list("pk"))

    def needed_by_subtasks(self, operation_id: str) -> set[str]:
        subtasks = Subtask.objects.filter(parent_id=operation_id)
        undone = subtasks.exclude(operation__state=State.COMPLETED)
        return {each for each in undone.values_list("given_id", flat=True) if each}

    def exchanged(self, operation_ids: Collection[str]) -> set[str]:
        subtasks = Subtask.objects.filter(parent__state=State.RUNNING)
        given = subtasks.filter(parent_id__in=operation_ids).values_list("given_id", flat=True)
        done = subtasks.filter(operation_id__in=operation_ids).values_list(
            "operation_id", flat=True
        )
        rows = Checkpoint.objects.filter(Q(pk__in=given) | Q(operation_id__in=done))
        return set(rows.values_list("artifacts_path", flat=True))

    def running(self, operation_ids: Collection[str]) -> Iterable[tuple[str, str]]:
        rows = Operation.objects.filter(state=State.RUNNING, pk__in=operation_ids)
        return rows.values_list("pk", "resume_from")

    def attempts_at_work(self, operation_id: str) -> dict[str, int]:
        begun = Max("attempts__number", filter=Q(attempts__receipt__isnull=False), default=0)
        return dict(_of(operation_id).active().values_list("pk").annotate(begun=begun))

    def not_succeeded(self, operation_id: str) -> OperationQuerySet:
        return _of(operation_id).exclude(state=State.COMPLETED)

    def check_damage(self, operation_id: str) -> None:
        concerns.check_damage(operation_id)

    def finished(self) -> OperationQuerySet:
        return Operation.objects.filter(state__in=FINISHED)


def _of(operation_id: str) -> OperationQuerySet:
    rows = Operation.objects.all()
    return rows.filter(pk=operation_id) if operation_id else rows
