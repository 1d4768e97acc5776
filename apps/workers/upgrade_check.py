"""What an upgrade of the database to this version needs: `trainops upgrade --check`."""

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Literal

from django.conf import settings

from apps.installation import schema
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.workers.models import Worker
from trainops.clock import DatabaseNow
from trainops.version import VERSION

Verdict = Literal["nothing to do", "rolling", "stop first", "refused"]


@dataclass(frozen=True, slots=True)
class UpgradeCheck:
    """The migrations are named `app.name`; workers are counted by version."""

    version: str
    verdict: Verdict
    message: str
    remedy: str
    pending: list[str]
    contract: dict[str, list[str]]  # those of `pending` that older processes do not work with
    unknown: list[str]  # applied by a newer version
    running: int | None  # operations; None: the database has no such table yet
    workers: dict[str, int]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def check() -> UpgradeCheck:
    """Judge the database. Raises DatabaseError where it does not respond."""
    plan, unknown = schema.pending(), schema.unknown()
    is_empty = schema.is_empty()  # then no process works with it
    contract = {} if is_empty else schema.reasons_to_stop(plan)
    running, workers = (None, {}) if is_empty else _running()
    verdict, message, remedy = _judged(
        len(plan), contract, unknown, running or sum(workers.values())
    )
    return UpgradeCheck(
        version=VERSION,
        verdict=verdict,
        message=message,
        remedy=remedy,
        pending=[f"{each.app_label}.{each.name}" for each in plan],
        contract={".".join(key): reasons for key, reasons in contract.items()},
        unknown=[".".join(key) for key in unknown],
        running=running,
        workers=workers,
    )


def _judged(
    missing: int, contract: dict[schema.Key, list[str]], unknown: list[schema.Key], busy: int
) -> tuple[Verdict, str, str]:
    try:
        schema.plan()
    except schema.WrongDatabase as error:
        message, _, remedy = str(error).partition(". ")
        return "refused", f"{message}.", remedy
    if unknown:
        message = f"A newer trainops has changed the database ({schema.listed(unknown)}); "
        message += "this version works with it."
        return "nothing to do", message, "Update trainops here to complete the upgrade."
    if not missing:
        return "nothing to do", "All migrations are applied.", ""
    if contract:
        message = "Processes of older versions do not work after these migrations."
        now = "Stop web, beat and all workers first" if busy else "See that nothing runs"
        return "stop first", message, f"{now}, then start this version on the first machine."
    message = "Processes of the version before work during and after these migrations."
    return "rolling", message, "Start this version on one machine after the other."


def _running() -> tuple[int, dict[str, int]]:
    """Read columns of the first release only: the database may be older than the models."""
    window = timedelta(seconds=settings.THRESHOLDS.worker_gone_seconds)
    present = Worker.objects.filter(heartbeat_at__gt=DatabaseNow() - window).order_by()
    running = Operation.objects.filter(state=State.RUNNING).order_by().count()
    found = [str(each.get("trainops") or "unknown")
             for each in present.values_list("capabilities", flat=True)]  # fmt: skip
    return running, dict(sorted(Counter(found).items()))
