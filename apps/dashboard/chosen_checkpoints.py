"""What deleting several checkpoints would do, and which of them cannot be deleted."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.checkpoints import sharing
from apps.checkpoints.models import Checkpoint
from apps.dashboard.confirmation import MOST_AT_A_CLICK
from apps.dashboard.formatting import plural, size
from apps.operations.models import Operation
from apps.operations.requests import access, bulk, deletion, services
from apps.operations.requests.access import Person
from trainops.errors import DomainError

MAX_CHECKPOINTS = bulk.MAX_OPERATIONS
MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class DeletionPreview:
    """Checkpoints that can be deleted, and others by name with the reason why not."""

    able: Sequence[Checkpoint]
    skipped: Sequence[tuple[str, str]]

    @property
    def title(self) -> str:
        total = len(self.able) + len(self.skipped)
        return f"Delete {len(self.able)} of {plural(total, 'checkpoint')}?"

    @property
    def text(self) -> str:
        """One sentence for what is freed, and one for each consequence."""
        if not self.able:
            return "Not possible for any of them:"
        rows = Checkpoint.objects.filter(pk__in=[each.pk for each in self.able])
        said = [f"Frees {size(sharing.freed_bytes(rows))}."]
        results = sum(each.type == Checkpoint.Type.FINAL for each in self.able)
        pinned = sum(each.pinned for each in self.able)
        if results:
            said.append(f"{plural(results, 'final result')} will be deleted.")
        if pinned:
            said.append(f"{plural(pinned, 'pinned checkpoint')} will be deleted.")
        return " ".join([*said, *self._not_resumable()])

    def _not_resumable(self) -> list[str]:
        going = {each.pk for each in self.able}
        operations = {each.operation_id: each.operation for each in self.able}
        rest = Checkpoint.objects.usable().filter(operation_id__in=operations).exclude(pk__in=going)
        kept = set(rest.values_list("operation_id", flat=True))
        names = [each.name for pk, each in operations.items() if pk not in kept]
        if not names:
            return []
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return [f"No checkpoint is left of {', '.join(names[:MAX_NAMED])}{more}."]

    @property
    def number_is_entered(self) -> bool:
        return len(self.able) > MOST_AT_A_CLICK


def of(ids: Sequence[str], user: Person) -> DeletionPreview:
    """Return which of these checkpoints this person may delete now."""
    found = Checkpoint.objects.filter(pk__in=ids[:MAX_CHECKPOINTS])
    able, skipped = [], []
    for each in found.select_related("operation__owner"):
        why_not = _refusal(each.operation, user)
        if why_not:
            skipped.append(
                (f"{each.operation.name}, {services.position(each, each.operation)}", why_not)
            )
        else:
            able.append(each)
    return DeletionPreview(able, skipped)


def _refusal(operation: Operation, user: Person) -> str:
    try:
        access.require(operation, user, "delete checkpoints of")
        deletion.require_deletable(operation)
    except DomainError as refusal:
        return refusal.message
    return ""
