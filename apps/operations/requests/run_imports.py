"""Runs of other tools become finished operations, each with its curves: see ADR 65.

The points are written in several short transactions, so that nothing else waits for them. The
operation has a result once all are there. One without, which a crash left, is written anew by the
next import of its run.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, TypedDict

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.operations.errors import NotAllowed
from apps.operations.id_order import oldest_first
from apps.operations.ids import new_id
from apps.operations.lifecycle import State
from apps.operations.models import MetricPoint, Operation, Tag
from apps.operations.points import extremes, new_points
from apps.operations.points.extremes import Extremes
from apps.operations.points.new_points import NewPoint
from apps.operations.requests.submission import canonical_hash, clean_name, clean_tags
from trainops.errors import DomainError
from trainops.kind import KINDS, Kind
from trainops.media.names import is_metric

if TYPE_CHECKING:
    from django.contrib.auth.models import User

AT_ONCE = 4096  # points of one transaction, which packs them
MAX_POINTS = 1_000_000
MAX_LINE_BYTES, MAX_NAME, MAX_STEP = 1000, 64, 2**63 - 1
MAX_EXACT = 2**53  # integers up to here are the same as floating-point numbers
ABANDONED_AFTER = timedelta(minutes=5)  # without a further point


class RunFields(TypedDict):
    """What is known of a run, besides its points."""

    tool: str
    run: str
    name: str
    status: str
    parameters: Mapping[str, object]
    tags: list[str]
    started_at: datetime
    finished_at: datetime | None


class PointsRefused(DomainError):
    def __init__(self, number: int, problem: str) -> None:
        allowed = '["name", step, value, Unix time]'
        message = f"Line {number} of the points: {problem}; allowed: {allowed}."
        super().__init__("INVALID_POINTS", message, {"line": number}, status=422)


@dataclass(slots=True)
class _Counts:
    """What the points of a run come to."""

    num_points: int = 0
    last_step: int = 0
    latest: dict[str, tuple[int, float | str]] = field(default_factory=dict)  # step, value
    left_out: set[str] = field(default_factory=set)  # names beyond those that are allowed

    def add(self, point: NewPoint, max_names: int) -> bool:
        """Count a point; False if it is one of too many names."""
        if point.name not in self.latest and len(self.latest) >= max_names:
            self.left_out.add(point.name)
            return False
        if self.num_points == MAX_POINTS:
            raise PointsRefused(MAX_POINTS + 1, f"more than {MAX_POINTS:,} points")
        self.num_points += 1
        self.last_step = max(self.last_step, point.step)
        value = point.not_finite if point.value is None else point.value
        if point.step >= self.latest.get(point.name, (-1, 0.0))[0]:
            self.latest[point.name] = (point.step, value)
        return True


def import_run(run: RunFields, points: IO[bytes], owner: "User") -> tuple[Operation, bool]:
    """Return the operation of a run, and whether it is new.

    The same run of the same owner is imported once.

    Raises:
        PointsRefused: a line is no point, or there are too many; nothing is left of it.
        NotAllowed: the run was imported with other content, or is being imported.
    """
    kind = _kind()
    name, tags = clean_name(run["name"]), clean_tags(run["tags"])
    given = {
        "tool": run["tool"], "run": run["run"], "tool_status": run["status"],
        "parameters": _queryable(run["parameters"], run["tool"]),
    }  # fmt: skip
    config = kind.parse_config(given).model_dump(mode="json")
    counts, digest = _checked(run, points)
    key = f"import-{canonical_hash({'tool': run['tool'], 'run': run['run']})}"
    if first := _imported_before(owner, key, digest):
        return first, False
    began = run["started_at"]
    ended = max(began, run["finished_at"] or began)
    operation = Operation(
        id=new_id(kind.name), kind=kind.name, name=name, owner=owner,
        config_given=given, config=config, config_hash=canonical_hash(config),
        idempotency_key=key, request_hash=digest, unit=kind.unit, state=State.COMPLETED,
        step=counts.last_step, total_steps=counts.last_step, attempt=1, takes_slot=False,
        created_at=began, queued_at=began, started_at=began, finished_at=ended,
        progressed_at=timezone.now(),
    )  # fmt: skip
    try:
        with transaction.atomic():
            operation.save(force_insert=True)
            Tag.objects.bulk_create(Tag(operation=operation, name=tag) for tag in tags)
    except IntegrityError:
        raise _in_progress(run["run"]) from None
    try:
        found = _write(operation, points)
        _finish(operation, counts, found, ended)
    except BaseException:
        _remove(operation)
        raise
    return operation, True


def _queryable(parameters: Mapping[str, object], tool: str) -> dict[str, object]:
    """Return parameters as queries find them: dotted names nested, and numbers of MLflow as such.

    Of `a` and `a.b`, the second keeps its dot.
    """
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        parts = name.split(".")
        place = found
        if any(".".join(parts[:count]) in parameters for count in range(1, len(parts))):
            parts = [name]
        for part in parts[:-1]:
            place = place.setdefault(part, {})
        is_text = tool == "mlflow" and isinstance(value, str)
        place[parts[-1]] = _number_or_text(str(value)) if is_text else value
    return found


def _number_or_text(text: str) -> float | str:
    """Return the number that a text is in JSON, if it is finite and no digits are lost."""
    try:
        number = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_exact = type(number) is int and abs(number) <= MAX_EXACT
    is_finite = type(number) is float and math.isfinite(number)
    return number if is_exact or is_finite else text


def _kind() -> Kind:
    return next(kind for kind in KINDS.values() if not kind.is_computed)


def _imported_before(owner: "User", key: str, digest: str) -> Operation | None:
    first = Operation.objects.filter(owner=owner, idempotency_key=key).first()
    if first is None:
        return None
    run = str(first.config["run"])
    if first.result is None:
        if first.progressed_at and timezone.now() - first.progressed_at < ABANDONED_AFTER:
            raise _in_progress(run)
        _remove(first)
        return None
    if first.request_hash != digest:
        raise NotAllowed(
            "RUN_CHANGED",
            f"Run {run!r} was imported as {first.pk} and has changed since then; delete {first.pk} "
            "to import it again.",
            operation_id=first.pk,
        )
    return first


def _in_progress(run: str) -> NotAllowed:
    return NotAllowed("RUN_IN_PROGRESS", f"Run {run!r} is being imported; try again later.")


def _checked(run: RunFields, points: IO[bytes]) -> tuple[_Counts, str]:
    """Read all points once; return what they come to, and a digest of run and points."""
    counts, digest = _Counts(), hashlib.sha256()
    described = {
        **run,
        "started_at": str(run["started_at"]),
        "finished_at": str(run["finished_at"]),
    }
    digest.update(canonical_hash(described).encode())
    max_names = settings.THRESHOLDS.metric_names_per_operation
    for point, line in _points(points):
        digest.update(line)
        counts.add(point, max_names)
    return counts, digest.hexdigest()


def _points(file: IO[bytes]) -> Iterator[tuple[NewPoint, bytes]]:
    file.seek(0)
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise PointsRefused(number, f"more than {MAX_LINE_BYTES} bytes")
        try:
            yield _point(json.loads(line)), line
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise PointsRefused(number, f"got {line[:60]!r}") from None


def _point(given: Any) -> NewPoint:
    name, step, value, at = given
    is_name = isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()
    if not is_name or type(step) is not int or not 0 <= step <= MAX_STEP:
        raise ValueError
    return NewPoint.of(1, name, step, float(value), float(at))


def _write(operation: Operation, file: IO[bytes]) -> Extremes:
    """Write and pack the points, and return the lowest and highest values.

    Each transaction packs its own points: to find some of many, PostgreSQL may sort them all.
    """
    from apps.operations.points import packed_points  # noqa: PLC0415 - loads NumPy

    counts, found = _Counts(), Extremes()
    max_names = settings.THRESHOLDS.metric_names_per_operation
    kept = (each for each, _ in _points(file) if counts.add(each, max_names))
    while some := list(islice(kept, AT_ONCE)):
        with transaction.atomic():
            operation.row.update(progressed_at=timezone.now())
            new_points.write(operation.pk, some)
            packed_points.pack(operation.pk)
        found = extremes.widened(found, some)
    return found


def _finish(operation: Operation, counts: _Counts, found: Extremes, ended: datetime) -> None:
    num_left_out = len(counts.left_out)
    operation.result = {"points": counts.num_points, "metrics": len(counts.latest)}
    operation.result |= {"metrics_left_out": num_left_out} if num_left_out else {}
    operation.metrics = {
        name: value for name, (_, value) in counts.latest.items() if is_metric(name)
    }
    operation.extremes, operation.progressed_at = found, ended
    operation.values_of_attempt = 0  # what was written meanwhile lacks these metrics
    tool, run = operation.config["tool"], operation.config["run"]
    with transaction.atomic():
        changed = ["result", "metrics", "extremes", "progressed_at", "values_of_attempt"]
        operation.save(update_fields=changed)
        operation.record(
            "IMPORTED",
            actor=operation.owner.get_username() if operation.owner else "",
            note=f"run {run} of {tool}: {counts.num_points:,} points",
        )


def _remove(operation: Operation) -> None:
    """Delete an operation whose points are not complete, in short transactions."""
    points = oldest_first(MetricPoint.objects.all(), operation_id=operation.pk)
    while ids := list(points.values_list("pk", flat=True)[:AT_ONCE]):
        MetricPoint.objects.filter(operation_id=operation.pk, pk__lte=ids[-1]).delete()
    operation.row.delete()
