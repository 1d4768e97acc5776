"""Rows with the latest values of metrics, of operations that have ended.

Lists are filtered and ordered by them. An attempt that runs writes `Operation.metrics` alone: each
claim makes the rows of the attempt before worthless without a statement of its own.
"""

from django.db import transaction
from django.db.models import F

from apps.operations.indexes import LACKS_VALUES
from apps.operations.lifecycle import FINISHED
from apps.operations.models import LatestValue, Operation

AT_ONCE = 500  # operations of one call


def write_missing() -> int:
    """Write the rows of some ended operations that lack them; return of how many.

    Several processes may do it at once: each takes rows that no other one has locked.
    """
    ended = Operation.objects.filter(LACKS_VALUES, state__in=FINISHED).order_by("state", "pk")
    ids = list(ended.values_list("pk", flat=True)[:AT_ONCE])
    if not ids:
        return 0
    with transaction.atomic():
        locked = ended.filter(pk__in=ids).select_for_update(skip_locked=True, no_key=True)
        found = dict(locked.values_list("pk", "metrics"))
        LatestValue.objects.filter(operation__in=found).delete()
        LatestValue.objects.bulk_create(
            LatestValue(operation_id=pk, name=name, value=value)
            for pk, metrics in found.items()
            for name, value in metrics.items()
            if isinstance(value, int | float)  # else not finite
        )
        Operation.objects.filter(pk__in=found).update(values_of_attempt=F("attempt"))
    return len(found)
