"""What a submission would do: the workers that can run it; time and size by earlier operations."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from django.contrib.auth.models import User
from django.utils import timezone

from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.operations.placement import need_of
from apps.operations.requests import projects, uncertainty
from apps.operations.requests.submission import clean_label, with_platform_defaults
from apps.operations.scheduling import queue_status, shares
from apps.operations.scheduling.blocking import (
    QueueStatus,
    WaitingOperation,
    able,
    queue_status_of,
)
from trainops.kind import KINDS
from trainops.plain import Config
from trainops.runtime.config import OperationConfig
from trainops.runtime.receipt import MATTERS, VARYING

MAX_EARLIER = 20
REFUSED = "On a GPU it is refused before its first step: exact: required needs deterministic: true."


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a submission would do.

    `seconds` and `checkpoint_bytes` are medians of `num_earlier` operations; None of 0.
    """

    status: QueueStatus  # why it would wait, or that it would start
    worker_ids: list[str]  # that can run it, busy or not
    num_earlier: int = 0
    seconds: float | None = None
    checkpoint_bytes: float | None = None
    notes: tuple[str, ...] = ()  # on exactness, one sentence each


def estimate(
    *,
    kind: str,
    config: Mapping[str, object],
    owner: User,
    queue: str = "",
    project: str = "",
) -> Estimate:
    """Return what submitting this would do, without doing it. Raises ConfigError and NotAllowed.

    Earlier operations are the latest MAX_EARLIER of the same recipe that completed in one attempt.
    Their times are scaled to the length of this config, if its kind has a length.
    """
    KINDS.require_computed(kind)
    parsed = KINDS[kind].parse_config(with_platform_defaults(kind, config))
    project = projects.clean(project)
    projects.require_member(project, owner)
    limits = shares.current(has_order=False).of(owner.pk, project)
    waiting = WaitingOperation(kind, clean_label(queue), need_of(parsed), allowances=limits)
    known = queue_status.workers()
    earlier = _earlier(kind, parsed.model_dump(mode="json"))
    return Estimate(
        queue_status_of(waiting, known, moment=timezone.now()),
        [worker.worker_id for worker in able(waiting, known)],
        len(earlier),
        median(seconds for seconds, _ in earlier) if earlier else None,
        median(size for _, size in earlier) if earlier else None,
        _notes(parsed),
    )


def _notes(config: OperationConfig) -> tuple[str, ...]:
    if not uncertainty.may_vary(config):
        return ()
    if config.exact == "required":
        return (REFUSED,)
    return (f"A resume may not be exact: {MATTERS['deterministic']}: {VARYING}.",)


def _earlier(kind: str, config: Config) -> list[tuple[float, int]]:
    """Return seconds, as scaled, and checkpoint bytes of earlier operations."""
    completed = Operation.objects.whole().filter(
        kind=kind, recipe=config.get("recipe", ""), state=State.COMPLETED, attempt=1,
        forked_from=None, started_at__isnull=False, finished_at__isnull=False,
    )  # fmt: skip
    latest = completed.only("config", "started_at", "finished_at", "checkpoint_bytes")
    return [
        (
            (each.finished_at - each.started_at).total_seconds() * _scale(kind, each, config),
            each.checkpoint_bytes,
        )
        for each in latest.order_by("-created_at", "-id")[:MAX_EARLIER]
        if each.finished_at and each.started_at
    ]


def _scale(kind: str, earlier: Operation, config: Config) -> float:
    """Return how many times as long as an earlier operation a config is; 1 without a length."""
    wanted, given = KINDS[kind].length_of(config), KINDS[kind].length_of(earlier.config)
    return wanted[1] / given[1] if wanted and given and wanted[0] == given[0] else 1.0
