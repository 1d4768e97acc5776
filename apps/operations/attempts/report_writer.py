"""Write what one attempt reports, in batches and under the fence."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Sum
from django.db.models.functions import Length

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.installation.counters import COUNTERS
from apps.ledger import services as ledgers
from apps.operations import concerns
from apps.operations.attempts import branches, selfchecks
from apps.operations.attempts.attempt_log import AttemptLog
from apps.operations.attempts.pace import PACE
from apps.operations.attempts.run_lines import PointLines, RunLines, WindowLines
from apps.operations.id_order import newest_first, oldest_first
from apps.operations.models import (
    Attempt,
    LogChunk,
    Media,
    MetricPoint,
    Operation,
    PackedPoints,
)
from apps.operations.models.media import MediaRetention
from apps.operations.points import extremes, new_points
from apps.operations.points.extremes import Extremes
from apps.operations.points.metric_queries import of_metrics
from apps.operations.points.new_points import NewPoint
from apps.operations.scheduling.claims import Fenced
from apps.operations.studies import pruning
from trainops.clock import DatabaseNow
from trainops.kind import KINDS
from trainops.media.errors import MediaError
from trainops.media.names import is_metric
from trainops.process.protocol import Finding, MediaLogged, ProgressUpdate
from trainops.runtime.checkpoint.manifest import CheckpointType, StagedCheckpoint
from trainops.runtime.ledger import Entry
from trainops.runtime.receipt import ReceiptJson

logger = logging.getLogger(__name__)
MAX_POINTS = 50_000  # kept while the database is away; beyond it the child is not listened to
MAX_MEDIA_BYTES = 32 * 1024**2  # the same
RATE_SECONDS = 20.0
MAX_PLACE = 120  # characters of "3 of 20 epochs"


class ProgressFields(TypedDict, total=False):
    """The fields of the operation that changed since the last write."""

    step: int
    total_steps: int | None
    place: str
    steps_per_second: float


@dataclass(slots=True)
class ReportWriter:
    operation: Operation
    clock: Callable[[], float] = time.monotonic
    fields: ProgressFields = field(default_factory=ProgressFields)
    metrics: dict[str, float | str] = field(default_factory=dict)
    extremes: Extremes | None = None  # None: not counted yet
    points: list[NewPoint] = field(default_factory=list)
    media: list[Media] = field(default_factory=list)
    output: AttemptLog = field(
        default_factory=lambda: AttemptLog(settings.THRESHOLDS.log_bytes_per_attempt)
    )
    timings: dict[str, float] = field(default_factory=dict)  # seconds, to the first step
    account_id: str = ""  # whose ledger it appends to: its own, or its parent's
    step: int = -1  # the newest that was reported
    place: str = ""
    lines: RunLines = field(init=False)
    from_step: int = 0  # where the attempt began
    has_refused_metrics: bool = False  # names beyond those that are allowed
    refused_media: set[str] = field(default_factory=set)  # names beyond those that are allowed
    unpacked: int | None = None  # points of the operation; None: not counted yet
    _moved: bool = False
    _has_saved: bool = False
    _rates: deque[tuple[float, int]] = field(default_factory=deque)
    _flushed_at: float = 0.0
    _flush_seconds: float = 0.0  # what the last flush took

    def __post_init__(self) -> None:
        self.metrics = dict(self.operation.metrics)
        self.extremes = self.operation.extremes
        self.account_id = self.account_id or self.operation.pk
        monitor = str(self.operation.config.get("monitor", ""))
        kind, unit = KINDS[self.operation.kind], self.operation.unit or "step"
        self.lines = RunLines(self.output, kind, unit, PointLines(monitor))

    @classmethod
    def continued(cls, operation: Operation) -> Self:
        """Return the writer of one request about an attempt over HTTP; its log is continued."""
        chunks = newest_first(
            LogChunk.objects.all(), operation_id=operation.pk, attempt=operation.attempt
        )
        text = chunks.values_list("text", flat=True).first() or "\n"
        max_chars = settings.THRESHOLDS.log_bytes_per_attempt
        output = AttemptLog(max_chars, is_within_line=not text.endswith("\n"))
        writer = cls(operation, output=output)
        points = newest_first(MetricPoint.objects.all(), operation_id=operation.pk)
        last_at = of_metrics(points).values_list("at", flat=True).first()
        writer.lines.points = WindowLines(last_at.timestamp() if last_at else 0.0)
        return writer

    @property
    def is_full(self) -> bool:
        num_bytes = sum(each.num_bytes for each in self.media)
        return len(self.points) > MAX_POINTS or num_bytes > MAX_MEDIA_BYTES

    def progress(self, report: ProgressUpdate) -> bool:
        """Add a report; True if it is at another step, or another place within one."""
        step, place = report.step, report.place[:MAX_PLACE]
        moved = step != self.step or place not in ("", self.place)  # a long evaluation's parts
        self.step, self.place = step, place
        self._moved |= moved
        self.fields |= {"step": step, "total_steps": report.total_steps, "place": place}
        self._rate(step)
        self.measured(report.points)
        self.lines.progress(report)
        return moved

    def measured(self, points: Iterable[tuple[int, float, Mapping[str, float]]]) -> None:
        """Add points (step, Unix time, value by name)."""
        for step, at, values in points:
            for name, value in values.items():
                self._point(step, at, name, value)

    def _point(self, step: int, at: float, name: str, value: float) -> None:
        if is_metric(name):
            if name not in self.metrics and not self._has_room_for(name):
                return
            self.metrics[name] = value if math.isfinite(value) else str(value)
        self.points.append(NewPoint.of(self.operation.attempt, name[:64], step, value, at))

    def _has_room_for(self, name: str) -> bool:
        max_names = settings.THRESHOLDS.metric_names_per_operation
        if len(self.metrics) < max_names:
            return True
        if not self.has_refused_metrics:
            self.has_refused_metrics = True
            allowed = f"{max_names} metrics (TRAINOPS_METRIC_NAMES_PER_OPERATION)"
            self.lines.refused(f"{name!r:.80} and other names beyond those allowed: {allowed}")
        return False

    def logged(self, message: MediaLogged) -> None:
        """Add an item that the recipe logged. What is not sound is left out, with a line."""
        try:
            item = message.item()
        except MediaError as error:
            self.lines.refused(f"{message.name!r:.80} at step {message.step:,}: {error}")
            return
        self.media.append(Media.of(item, self.operation.pk, self.operation.attempt, message.at))

    def _rate(self, step: int) -> None:
        moment = self.clock()
        self._rates.append((moment, step))
        while moment - self._rates[0][0] > RATE_SECONDS and len(self._rates) > 2:
            self._rates.popleft()
        elapsed = moment - self._rates[0][0]
        if elapsed > 0:
            self.fields["steps_per_second"] = (step - self._rates[0][1]) / elapsed

    @property
    def is_due(self) -> bool:
        waiting = self.fields or self.points or self.media or self.output
        pause = PACE.flush_seconds(self._flush_seconds)
        return bool(waiting) and self.clock() - self._flushed_at >= pause

    def flush(self) -> None:
        """Write everything so far.

        Raises:
            Fenced: the attempt no longer owns the operation; nothing was written.
            DatabaseError: nothing was written, and everything is kept for the next try.
        """
        began = self._flushed_at = self.clock()  # also when it fails: the next try is not at once
        try:
            with transaction.atomic():
                self._write()
        finally:
            self._flush_seconds = self.clock() - began
        self._written()

    def restored(self, receipt: ReceiptJson, step: int, measured_to: int | None = None) -> None:
        """Write what a resume restored, and retire the points that it measures again.

        `measured_to`: the last step whose points are not measured again; none given: `step`.
        """
        kept = step if measured_to is None else measured_to
        self.step = self.from_step = step
        receipt = selfchecks.corrected(self.operation.pk, receipt)
        with transaction.atomic():
            self._require_ownership(step=step, metrics=self.metrics)
            self._attempt(receipt=receipt, from_step=step, to_step=step, measured_to=kept)
            branches.stand(
                self.operation.pk, by=self.operation.attempt,
                checkpoint=receipt["checkpoint"], measured_to=kept, from_step=step,
            )  # fmt: skip
            self.extremes = extremes.measured(self.operation.pk)
            self._require_ownership(extremes=self.extremes)
            place = self._place(receipt) if receipt["checkpoint"] else ""
            if step:
                how = "exactly" if receipt["exact"] else "not exactly"
                self.operation.record(
                    "RESTORED", actor=self.operation.worker_id, note=f"{place}, {how}"
                )
        self.lines.restored(receipt, place)

    def _place(self, receipt: ReceiptJson) -> str:
        """Return where the checkpoint that was restored stands, in the words of its kind."""
        path = f"{self.operation.pk}/{receipt['checkpoint']}"
        rows = Checkpoint.objects.filter(operation_id=self.operation.pk, artifacts_path=path)
        state = rows.values_list("state", flat=True).first() or {}
        return self.lines.kind.place(state, receipt["step"])

    def self_checked(self, found: Finding) -> None:
        """Write down what the self-check of this attempt's first checkpoint found.

        Raises:
            Fenced: the attempt no longer owns the operation; nothing was written.
        """
        operation = self.operation
        what, note = selfchecks.EVENTS[found.verdict], selfchecks.note(found, operation.unit)
        with transaction.atomic():
            # Its own number again, so that there is something to write: an update of nothing
            # matches no row, and metrics may be newer than what is known here.
            self._require_ownership(attempt=operation.attempt, **selfchecks.fields(found))
            before = self._row().values_list("receipt", flat=True).first()
            self._attempt(receipt=selfchecks.kept(before, found, operation.unit))
            operation.record(what, actor=operation.worker_id, note=note)
        self.lines.self_checked(found, note)

    def append(self, entries: Iterable[Entry]) -> None:
        """Append entries to the operation's ledger, before what they describe happens.

        Raises:
            Fenced: the attempt no longer owns the operation; nothing was written.
        """
        with transaction.atomic():
            self._require_ownership(progressed_at=DatabaseNow())
            attempt = Operation.objects.values_list("attempt", flat=True).get(pk=self.account_id)
            ledgers.append(self.account_id, attempt, entries, self.operation.ledger_fields)

    def commit(self, staged: StagedCheckpoint, *, signature: str | None = None) -> Checkpoint:
        """Commit a staged checkpoint: what was said before it, its row, the fence, all or none.

        `signature`: see `checkpoints.commit`.

        Raises:
            Fenced: the attempt no longer owns the operation; the staged files have no owner.
            CheckpointCorrupted: what it refers to in the bucket was deleted meanwhile.
        """
        with transaction.atomic():
            self._write()
            checkpoint = checkpoints.commit(
                operation_id=self.operation.pk,
                attempt=self.operation.attempt,
                staged=staged,
                signature=signature,
            )
            # From here on the newest checkpoint is this branch's, not a chosen older one.
            self._require_ownership(
                resume_from="", checkpoint_bytes=checkpoint.artifacts_size_bytes
            )
            if staged.type == CheckpointType.PERIODIC and not self._has_saved:
                self._measure_first(checkpoint)
            if staged.step > self.from_step:  # progress: the next crash starts afresh
                self._require_ownership(restarts_used=0)
                self.operation.restarts_used = 0
            concerns.checkpoint_committed(self.operation, staged.step)
        self._written()
        self._has_saved |= staged.type == CheckpointType.PERIODIC
        self._count(checkpoint, staged)
        self.lines.committed(staged)
        self._let_go()
        pruning.checkpoint_committed(self.operation, staged.type)
        return checkpoint

    def _measure_first(self, checkpoint: Checkpoint) -> None:
        """Note after how many seconds the attempt had its first checkpoint."""
        mine = Checkpoint.objects.filter(operation_id=self.operation.pk)
        if mine.filter(attempt=self.operation.attempt).count() > 1:
            return  # of an attempt over HTTP: each request has a ledger of its own
        started_at = self._row().values_list("started_at", flat=True).first()
        if started_at is not None:
            seconds = (checkpoint.created_at - started_at).total_seconds()
            self._require_ownership(first_checkpoint_seconds=max(0, math.ceil(seconds)))

    def _count(self, checkpoint: Checkpoint, staged: StagedCheckpoint) -> None:
        kind = self.operation.kind
        COUNTERS.add("checkpoints_committed", kind=kind, type=str(staged.type))
        COUNTERS.add("checkpoint_bytes", checkpoint.counted_size_bytes, kind=kind)
        COUNTERS.add("checkpoint_write_seconds", staged.write_seconds, kind=kind)

    def _let_go(self) -> None:
        """Delete what the policy no longer keeps; what fails here, the next commit mends."""
        try:
            checkpoints.retain(self.operation.pk, **self.operation.retention)
        except DatabaseError as error:
            logger.warning("%s: retention is put off: %s", self.operation.pk, error)

    def _write(self) -> None:
        moved = {"progressed_at": DatabaseNow()} if self._moved else {}
        if self.extremes is None:
            self.extremes = extremes.measured(self.operation.pk)
        self.extremes = extremes.widened(self.extremes, self.points)
        self._require_ownership(
            metrics=self.metrics, extremes=self.extremes, **self.fields, **moved
        )
        if "step" in self.fields:
            self._attempt(to_step=self.fields["step"])
        if self.timings:
            self._attempt(timings=self.timings)
        if self.points:
            new_points.write(self.operation.pk, self.points)
            self._pack()
        if self.media:
            self._write_media()
        if chunks := self.output.chunks():
            self._write_log(chunks)

    def _write_media(self) -> None:
        thresholds = settings.THRESHOLDS
        retention = MediaRetention(
            thresholds.media_steps_per_name,
            thresholds.media_bytes_per_name,
            thresholds.media_names_per_operation,
        )
        for name in Media.write(self.operation.pk, self.media, retention) - self.refused_media:
            self.refused_media.add(name)
            allowed = f"{retention.max_names} names (TRAINOPS_MEDIA_NAMES_PER_OPERATION)"
            self.lines.refused(f"{name!r} is one name more than allowed: {allowed}")

    def _pack(self) -> None:
        """Pack points once they are many; a part at a time of those of an early version."""
        if self.unpacked is None:
            newest = PackedPoints.newest_id(self.operation.pk)
            unpacked = oldest_first(
                MetricPoint.objects.all(), newest, operation_id=self.operation.pk
            )
            self.unpacked = unpacked.count()
        else:
            self.unpacked += len(self.points)
        if self.unpacked >= PackedPoints.MAX_UNPACKED:
            from apps.operations.points import packed_points  # noqa: PLC0415 - loads NumPy

            packed = packed_points.pack(self.operation.pk)
            self.unpacked = self.unpacked - packed if packed else None  # some were there before

    def forget(self) -> None:
        """Let go of what can never be written."""
        self._written()

    def _written(self) -> None:
        self.fields = ProgressFields()
        self.points.clear()
        self.media.clear()
        self.output.clear()
        self._moved = False
        self._flushed_at = self.clock()

    def _require_ownership(self, **fields: Any) -> None:
        if not Operation.objects.owned(self.operation.pk, self.operation.attempt).update(**fields):
            raise Fenced

    def _row(self) -> Any:
        return Attempt.objects.filter(operation_id=self.operation.pk, number=self.operation.attempt)

    def _attempt(self, **fields: Any) -> None:
        self._row().update(**fields)

    def _write_log(self, texts: list[str]) -> None:
        mine = {"operation_id": self.operation.pk, "attempt": self.operation.attempt}
        LogChunk.objects.bulk_create((LogChunk(**mine, text=text) for text in texts), 500)
        chunks = LogChunk.objects.filter(**mine)
        kept = chunks.aggregate(total=Sum(Length("text")))["total"] or 0
        excess, last = kept - settings.THRESHOLDS.log_bytes_per_attempt, 0
        if excess <= 0:
            return
        for pk, length in chunks.order_by("id").values_list("id", Length("text")).iterator():
            if excess <= 0:
                break
            excess, last = excess - length, pk
        chunks.filter(id__lte=last).delete()
