"""The lines about a run in its attempt's log: start, points of metrics, checkpoints, end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.operations.attempts.attempt_log import AttemptLog, Level
from apps.operations.attempts.outcomes import AttemptOutcome, Cancelled, Completed, Interrupted
from apps.operations.attention import BAD_CHECKS
from apps.operations.lifecycle import Reason
from apps.operations.requests import uncertainty
from apps.operations.scheduling import restarts
from trainops.kind import Kind
from trainops.media.names import is_metric
from trainops.process.protocol import Corrupted, Directive, Finding, ProgressUpdate
from trainops.quantities import number, size
from trainops.runtime.checkpoint.manifest import StagedCheckpoint
from trainops.runtime.receipt import ReceiptJson

BURST_LINES = 300  # of metrics
LINES_PER_SECOND = 2.0  # after a burst
QUIET_SECONDS = 10.0  # after so long, other points have a line, too
MAX_METRICS = 12  # of one line
PLACES = ("epoch", "round", "episode", "iteration")  # metrics that say where a point is
PLANNED = restarts.FREE | {Reason.TIME_LIMIT}


@dataclass(slots=True)
class PointLines:
    """Says which points of an attempt have a line in its log.

    Those at the end of an epoch or of a round, and of an evaluation, hold the monitored metric and
    more than the points between. Those between have a line after QUIET_SECONDS without one. The
    rate of all is limited.
    """

    monitor: str
    _common: frozenset[str] | None = None  # names that all points have
    _seen: frozenset[str] = frozenset()
    _left: float = BURST_LINES
    _line_at: float = 0.0  # of the last line
    _refilled_at: float = 0.0

    def has_line(self, names: frozenset[str], at: float) -> bool:
        """Whether a point with these metrics, at this Unix time, has a line."""
        self._common = names if self._common is None else self._common & names
        self._seen |= names
        is_main = not self.monitor or self.monitor in names
        is_richest = self._seen == self._common or bool(names - self._common)
        if not (is_main and is_richest) and at - self._line_at < QUIET_SECONDS:
            return False
        refill = LINES_PER_SECOND * max(0.0, at - self._refilled_at)
        self._left, self._refilled_at = min(BURST_LINES, self._left + refill), at
        if self._left < 1:
            return False
        self._left, self._line_at = self._left - 1, at
        return True


@dataclass(slots=True)
class WindowLines:
    """Says which points of a worker over HTTP have a line: the first of each QUIET_SECONDS.

    last_at: Unix time of the last point before the report, since nothing else is kept between
    two reports.
    """

    last_at: float

    def has_line(self, names: frozenset[str], at: float) -> bool:
        """Whether a point at this Unix time has a line, whatever its metrics."""
        is_first = at // QUIET_SECONDS != self.last_at // QUIET_SECONDS
        self.last_at = at
        return is_first


@dataclass(slots=True)
class RunLines:
    """Writes the lines about a run into its attempt's log."""

    log: AttemptLog
    kind: Kind
    unit: str
    points: PointLines | WindowLines = field(default_factory=lambda: PointLines(""))

    def progress(self, report: ProgressUpdate) -> None:
        """A line for each point that has one; see PointLines and WindowLines."""
        of = f" of {report.total_steps:,}" if report.total_steps else ""
        for step, at, values in report.points:
            shown = {name: each for name, each in values.items() if is_metric(name)}
            if shown and self.points.has_line(frozenset(shown), at):
                places = [f"{name} {shown.pop(name):,.0f}" for name in PLACES if name in shown]
                where = ", ".join([*places, f"{self.unit} {step:,}{of}"])
                self.log.line("INFO", f"{where}: {_metrics(shown)}" if shown else where, at)

    def restored(self, receipt: ReceiptJson, place: str) -> None:
        """Lines on where the attempt starts, and on what no resume is certain to restore.

        `place` is that of the checkpoint.
        """
        self._started(receipt, place)
        if found := receipt.get("uncertain"):
            self.log.line("WARNING", f"a resume may not be exact: {uncertainty.listed(found)}")

    def _started(self, receipt: ReceiptJson, place: str) -> None:
        if not receipt["checkpoint"]:
            self.log.line("INFO", "started from the beginning")
            return
        where = f"restored {place} from {receipt['checkpoint']}"
        if receipt["exact"]:
            self.log.line("INFO", f"{where}: exact")
            return
        items = receipt["items"]
        problems = [f"{each['part']}: {each['note']}" for each in items if not each["exact"]]
        self.log.line("WARNING", f"{where}: not exact; {'; '.join(problems)}")

    def committed(self, staged: StagedCheckpoint) -> None:
        """A line for a checkpoint."""
        num_bytes = sum(each.size_bytes for each in staged.artifacts)
        seconds = f", written in {staged.write_seconds:.2f} s" if staged.write_seconds else ""
        place = self.kind.place(staged.state, staged.step)
        self.log.line("INFO", f"checkpoint at {place}: {staged.type}, {size(num_bytes)}{seconds}")

    def save_failed(self, error: str) -> None:
        """A line for a checkpoint that could not be written."""
        self.log.line("WARNING", f"checkpoint not saved: {error}")

    def refused(self, problem: str) -> None:
        """A line for something that the recipe logged and that is not kept."""
        self.log.line("WARNING", f"not kept of what the recipe logged: {problem}")

    def self_checked(self, found: Finding, note: str) -> None:
        """A line for the result of the self-check."""
        self.log.line("WARNING" if found.verdict in BAD_CHECKS else "INFO", f"self-check: {note}")

    def stopping(self, directive: Directive) -> None:
        """A line for a stop request."""
        what = {"CANCEL": "cancel requested", "PREEMPT": "the worker or a limit stops the attempt"}
        self.log.line("INFO", f"{what[directive]}: saving at the next safe point")

    def ended(self, outcome: AttemptOutcome) -> None:
        """A line for the end of the attempt; none if it no longer owns the operation."""
        match outcome:
            case Completed(reason=reason):
                self.log.line("INFO", f"completed ({reason.label})" if reason else "completed")
            case Cancelled(note=note):
                self.log.line("INFO", f"cancelled: {note}")
            case Interrupted(reason=reason, note=note, error=error):
                level: Level = "INFO" if reason in PLANNED and error is None else "ERROR"
                self.log.line(level, f"attempt ended: {reason}: {note}")

    def corrupted(self, message: Corrupted) -> None:
        """A line for a checkpoint that cannot be used."""
        found = [*message.missing, *message.altered]
        why = message.reason or f"missing or altered: {', '.join(found)}"
        self.log.line("WARNING", f"checkpoint {message.directory} is corrupted ({why})")


def _metrics(values: Mapping[str, float]) -> str:
    shown = [f"{name} {number(value)}" for name, value in values.items()]
    more = len(shown) - MAX_METRICS
    return ", ".join(shown[:MAX_METRICS]) + (f" and {more} more" if more > 0 else "")
