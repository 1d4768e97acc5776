"""Operations that break whatever host runs them: a third host would only be the next."""

from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling.restarts import CRASH

HOSTS = 2


def own_fault(operation: Operation, reason: Reason, note: str) -> str:
    """Return why a crash is the operation's own fault: it crashed on two hosts, without progress.

    `reason` and `note` are of the attempt that has just ended. Empty where it may be the host's.
    """
    if reason not in CRASH:
        return ""
    attempts = Attempt.objects.filter(operation_id=operation.pk)
    host = attempts.get(number=operation.attempt).host
    # As many were restarted since the last progress; shutdowns do not count.
    earlier = attempts.filter(number__lt=operation.attempt, ended_at__isnull=False).exclude(
        outcome=Attempt.Outcome.PREEMPTED
    )[: operation.restarts_used]
    deaths = [(operation.attempt, host, str(reason), note)]
    deaths += [(a.number, a.host, a.reason, a.note) for a in earlier if a.reason in CRASH]
    if len({host for _, host, _, _ in deaths if host}) < HOSTS:
        return ""
    crashes = "; ".join(
        f"attempt {number} on {host or 'an unknown host'}: {reason} ({note})"
        for number, host, reason, note in reversed(deaths)
    )
    return f"it crashed on {HOSTS} hosts, so the operation is at fault: {crashes}"
