"""What one attempt reports, written down in batches and under the fence."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Sum
from django.db.models.functions import Length

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations import privacy
from apps.operations.attempts import branches, selfchecks
from apps.operations.models import Attempt, LogChunk, MetricPoint, Operation
from apps.operations.scheduling.claims import Fenced
from trainops.clock import DatabaseNow
from trainops.runtime.ledger import Entry

logger = logging.getLogger(__name__)
FLUSH_SECONDS = 0.5
MAX_POINTS = 50_000  # kept while the database is away; beyond it the child is not listened to
RATE_SECONDS = 20.0
MAX_PLACE = 120  # characters of "epoch 3 of 20"


@dataclass(slots=True)
class Ledger:
    operation: Operation
    clock: Callable[[], float] = time.monotonic
    fields: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float | str] = field(default_factory=dict)
    points: list[MetricPoint] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)  # seconds, to the first step
    account_id: str = ""  # whose privacy ledger it writes: its own, or its server's
    step: int = -1  # the newest that was reported
    place: str = ""
    from_step: int = 0  # where the attempt began
    _moved: bool = False
    _rates: deque[tuple[float, int]] = field(default_factory=deque)
    _flushed_at: float = 0.0

    def __post_init__(self) -> None:
        self.metrics = dict(self.operation.metrics)
        self.account_id = self.account_id or self.operation.pk

    @property
    def is_full(self) -> bool:
        return len(self.points) > MAX_POINTS

    def progress(self, message: Mapping[str, Any]) -> bool:
        """Take in a report; True if it is at another step, or another place within one."""
        step: int = message["step"]
        place = message["place"][:MAX_PLACE]
        moved = step != self.step or place not in ("", self.place)  # a long evaluation's parts
        self.step, self.place = step, place
        self._moved |= moved
        self.fields |= {key: message[key] for key in ("step", "total_steps")} | {"place": place}
        self._rate(message["step"])
        for step, at, values in message["points"]:
            for name, value in values.items():
                self._point(step, at, name, value)
        return moved

    def _point(self, step: int, at: float, name: str, value: float) -> None:
        finite = math.isfinite(value)
        self.metrics[name] = value if finite else str(value)
        self.points.append(
            MetricPoint(
                operation_id=self.operation.pk,
                attempt=self.operation.attempt,
                name=name[:64],
                step=step,
                value=value if finite else None,
                not_finite="" if finite else str(value),
                at=datetime.fromtimestamp(at, UTC),
            )
        )

    def _rate(self, step: int) -> None:
        moment = self.clock()
        self._rates.append((moment, step))
        while moment - self._rates[0][0] > RATE_SECONDS and len(self._rates) > 2:
            self._rates.popleft()
        elapsed = moment - self._rates[0][0]
        if elapsed > 0:
            self.fields["steps_per_second"] = (step - self._rates[0][1]) / elapsed

    def log(self, output: bytes) -> None:
        # PostgreSQL's text cannot hold NUL; nobody can read it anyway.
        self.text.append(
            output.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        )

    @property
    def is_due(self) -> bool:
        waiting = self.fields or self.points or self.text
        return bool(waiting) and self.clock() - self._flushed_at >= FLUSH_SECONDS

    def flush(self) -> None:
        """Write everything so far.

        Raises:
            Fenced: the attempt no longer owns the operation; nothing was written.
            DatabaseError: nothing was written, and everything is kept for the next try.
        """
        self._flushed_at = self.clock()  # also when it fails: the next try is not at once
        with transaction.atomic():
            self._write()
        self._written()

    def restored(
        self, receipt: Mapping[str, Any], step: int, measured_to: int | None = None
    ) -> None:
        """Write what a resume restored, and retire the points that it measures again.

        `measured_to`: the last step whose points are not measured again; none given: `step`.
        """
        kept = step if measured_to is None else measured_to
        self.step = self.from_step = step
        receipt = selfchecks.told_of_earlier(self.operation.pk, receipt)
        with transaction.atomic():
            self._require_ownership(step=step, metrics=self.metrics)
            self._attempt(receipt=receipt, from_step=step, to_step=step, measured_to=kept)
            branches.stand(
                self.operation.pk, by=self.operation.attempt,
                checkpoint=receipt["checkpoint"], measured_to=kept,
            )  # fmt: skip
            if step:
                how = "exactly" if receipt["exact"] else "not exactly"
                self.operation.record(
                    "RESTORED", actor=self.operation.worker_id, note=f"step {step}, {how}"
                )

    def self_checked(self, found: Mapping[str, Any]) -> None:
        """Write down what the self-check of this attempt's first checkpoint found.

        Raises:
            Fenced: the attempt no longer owns the operation; nothing was written.
        """
        operation = self.operation
        what, note = selfchecks.EVENTS[found["verdict"]], selfchecks.note(found, operation.unit)
        told = {name: each for name, each in found.items() if name != "kind"}
        with transaction.atomic():
            # Its own number again, so that there is something to write: an update of nothing
            # matches no row, and metrics may be newer than what is known here.
            self._require_ownership(attempt=operation.attempt, **selfchecks.fields(told))
            before = self._row().values_list("receipt", flat=True).first()
            self._attempt(receipt=selfchecks.kept(before, told, operation.unit))
            operation.record(what, actor=operation.worker_id, note=note)

    def spend(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Write down what is about to be released, before it is.

        Raises:
            Fenced: the attempt no longer owns the operation; nothing was written.
        """
        with transaction.atomic():
            self._require_ownership(progressed_at=DatabaseNow())
            attempt = Operation.objects.values_list("attempt", flat=True).get(pk=self.account_id)
            privacy.append(self.account_id, attempt, (Entry(**each) for each in entries))

    def commit(self, staged: Mapping[str, Any]) -> Checkpoint:
        """Commit a staged checkpoint: what was said before it, its row, the fence, all or none.

        Raises:
            Fenced: the attempt no longer owns the operation; the staged files are nobody's.
            CheckpointCorrupted: what it refers to in the bucket was deleted meanwhile.
        """
        with transaction.atomic():
            self._write()
            checkpoint = checkpoints.commit(
                operation_id=self.operation.pk,
                attempt=self.operation.attempt,
                staged=staged,
            )
            # From here on the newest checkpoint is this branch's, not a chosen older one.
            self._require_ownership(
                resume_from="", checkpoint_bytes=checkpoint.artifacts_size_bytes
            )
            if staged["step"] > self.from_step:  # progress: the next crash starts afresh
                self._require_ownership(restarts_used=0)
                self.operation.restarts_used = 0
        self._written()
        self._let_go()
        return checkpoint

    def _let_go(self) -> None:
        """Delete what the policy no longer keeps; what fails here, the next commit mends."""
        try:
            checkpoints.retain(self.operation.pk, **self.operation.retention)
        except DatabaseError as error:
            logger.warning("%s: retention is put off: %s", self.operation.pk, error)

    def _write(self) -> None:
        moved = {"progressed_at": DatabaseNow()} if self._moved else {}
        self._require_ownership(metrics=self.metrics, **self.fields, **moved)
        if "step" in self.fields:
            self._attempt(to_step=self.fields["step"])
        if self.timings:
            self._attempt(timings=self.timings)
        MetricPoint.objects.bulk_create(self.points, ignore_conflicts=True, batch_size=500)
        if self.text:
            self._write_log("".join(self.text))

    def forget(self) -> None:
        """Let go of what can never be written."""
        self._written()

    def _written(self) -> None:
        self.fields.clear()
        self.points.clear()
        self.text.clear()
        self._moved = False
        self._flushed_at = self.clock()

    def _require_ownership(self, **fields: Any) -> None:
        if not Operation.objects.owned(self.operation.pk, self.operation.attempt).update(**fields):
            raise Fenced

    def _row(self) -> Any:
        return Attempt.objects.filter(operation_id=self.operation.pk, number=self.operation.attempt)

    def _attempt(self, **fields: Any) -> None:
        self._row().update(**fields)

    def _write_log(self, text: str) -> None:
        mine = {"operation_id": self.operation.pk, "attempt": self.operation.attempt}
        LogChunk.objects.create(**mine, text=text)
        chunks = LogChunk.objects.filter(**mine)
        kept = chunks.aggregate(total=Sum(Length("text")))["total"] or 0
        limit = settings.THRESHOLDS.log_bytes_per_attempt
        while kept > limit and (oldest := chunks.order_by("id").first()):
            kept -= len(oldest.text)
            oldest.delete()
