"""Which operations are compared, and with which of them as the baseline."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from apps.checkpoints.storage import is_operation_id
from apps.operations.errors import OperationNotFound
from apps.operations.models import Operation
from trainops.errors import DomainError

MIN_OPERATIONS, MAX_OPERATIONS = 2, 12
ALLOWED = f"{MIN_OPERATIONS} to {MAX_OPERATIONS} operations, separated by commas, each once"
UNUSED = ("config_given", "error", "metrics", "result")  # columns that a comparison does not read


class NotComparable(DomainError):
    """The operations or the baseline cannot be compared; status 400."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(
            "VALIDATION_ERROR", f"{field}: {problem}", {"fields": {field: problem}}, status=400
        )


def parsed(text: str) -> list[str]:
    """Return the ids in a list that is separated by commas; empty parts are left out."""
    return [each.strip() for each in text.split(",") if each.strip()]


def require(ids: Sequence[str], baseline: str = "") -> str:
    """Return the id of the baseline, by default the first one. Raises NotComparable."""
    if not MIN_OPERATIONS <= len(ids) <= MAX_OPERATIONS:
        raise NotComparable("ids", f"got {len(ids)}; allowed: {ALLOWED}")
    repeated, number = Counter(ids).most_common(1)[0]
    if number > 1:
        raise NotComparable("ids", f"got {repeated[:64]!r} {number} times; allowed: {ALLOWED}")
    if baseline and baseline not in ids:
        problem = f"got {baseline[:64]!r}; allowed: one of the ids, {', '.join(ids)}"
        raise NotComparable("baseline", problem[:1000])
    return baseline or ids[0]


@dataclass(frozen=True, slots=True)
class Selected:
    """Operations in the order in which they were chosen, and the ids of those that do not exist."""

    operations: list[Operation]
    baseline: str
    missing: list[str]


def chosen(ids: Sequence[str], baseline: str = "") -> Selected:
    """Return 2 to 12 operations, all of which exist. Raises NotComparable, OperationNotFound."""
    baseline = require(ids, baseline)
    return Selected(fetch(ids), baseline, [])


def remaining(ids: Sequence[str], baseline: str = "", *, at_least: int = 1) -> Selected:
    """Return those of 2 to 12 operations that exist; another baseline where that was deleted.

    Raises NotComparable; OperationNotFound where fewer than `at_least` exist, or where one has no
    id of an operation.
    """
    baseline = require(ids, baseline)
    found = _found(ids)
    missing = [each for each in ids if each not in found]
    if wrong := [each for each in missing if not is_operation_id(each)]:
        raise OperationNotFound(wrong[0])
    if len(found) < at_least:
        raise OperationNotFound(missing[0])
    operations = [found[each] for each in ids if each in found]
    return Selected(operations, baseline if baseline in found else operations[0].pk, missing)


def fetch(ids: Sequence[str]) -> list[Operation]:
    """Return the operations in this order; one query. Raises OperationNotFound."""
    found = _found(ids)
    if missing := [each for each in ids if each not in found]:
        raise OperationNotFound(missing[0])
    return [found[each] for each in ids]


def _found(ids: Sequence[str]) -> dict[str, Operation]:
    return Operation.objects.filter(pk__in=ids).defer(*UNUSED).in_bulk()
