"""Runs of other tools, as they are read from their files; and the limits of that."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from trainops.plain import Json

MAX_POINTS = 1_000_000  # of a run
MAX_NAMES = 1000
MAX_NAME, MAX_RUN_NAME, MAX_TAG = 64, 120, 64  # characters
MAX_TAGS, MAX_OWN_TAGS = 20, 16  # in all, which the server allows; those that the run has there
MAX_PARAMETERS, MAX_PARAMETER_CHARS = 1000, 6000
MAX_STEP = 2**63 - 1
MAX_TEXT_BYTES = 64 * 1024  # of a small file of text
MAX_RECORD_BYTES = 32 * 1024**2
MIN_TIME, MAX_TIME = 0.0, 253_402_214_400.0  # Unix time: until the end of the year 9999


class RunUnreadable(Exception):
    """Nothing is imported of a run; the message says why."""


@dataclass(slots=True)
class ForeignRun:
    """A run of another tool. points: (value, Unix time) by name and step; the last one counts."""

    tool: str
    run: str  # its id there, or its directory
    name: str
    path: Path
    status: str = ""
    parameters: dict[str, Json] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    started_at: float | None = None
    finished_at: float | None = None
    points: dict[str, dict[int, tuple[float, float]]] = field(default_factory=dict)
    num_points: int = 0
    notes: list[str] = field(default_factory=list)  # what is left out, and why
    _left_out: dict[str, set[str]] = field(default_factory=dict)  # names by reason

    def add(self, name: str, step: int, value: float, at: float) -> None:
        """Add a point. Raises RunUnreadable if there are too many."""
        if not 0 <= step <= MAX_STEP:
            self.leave_out(name, "negative steps")
            return
        name = metric_name(name)
        curve = self.points.get(name)
        if curve is None:
            if len(self.points) >= MAX_NAMES:
                self.leave_out(name, f"more than {MAX_NAMES} metrics")
                return
            curve = self.points[name] = {}
        if step not in curve:
            self.num_points += 1
            if self.num_points > MAX_POINTS:
                raise RunUnreadable(f"it has more than {MAX_POINTS:,} points; nothing is imported")
        curve[step] = value, at if MIN_TIME <= at <= MAX_TIME else 0.0

    def leave_out(self, name: str, why: str) -> None:
        """Note that the run has points of a metric that are not imported."""
        self._left_out.setdefault(why, set()).add(name)

    def lines(self) -> Iterable[str]:
        """Yield the points as JSON, those of each metric by step."""
        for name, curve in self.points.items():
            for step in sorted(curve):
                value, at = curve[step]
                shown = value if math.isfinite(value) else str(value)
                yield f"{json.dumps([name, step, shown, at])}\n"

    def described(self, further_tags: Iterable[str] = ()) -> dict[str, Json]:
        """Return all but the points, as the API takes it."""
        times = [at for curve in self.points.values() for _, at in curve.values() if at]
        started = self.started_at or min(times, default=0.0)
        finished = self.finished_at or max(times, default=started)
        kept, _ = self._tags(further_tags)
        return {
            "tool": self.tool,
            "run": printable(self.run)[:200],
            "name": printable(self.name)[:MAX_RUN_NAME] or printable(self.run)[:MAX_RUN_NAME],
            "status": printable(self.status)[:40],
            "parameters": dict(self._parameters()),
            "tags": [*kept],
            "started_at": _iso(started),
            "finished_at": _iso(max(started, finished)),
        }

    def all_notes(self, further_tags: Iterable[str] = ()) -> list[str]:
        """Return what is left out, and why."""
        left_out = (f"{len(names)} metrics: {why}" for why, names in self._left_out.items())
        num_more = len(self.parameters) - MAX_PARAMETERS
        more = [f"{num_more} parameters beyond {MAX_PARAMETERS}"] if num_more > 0 else []
        if num_tags := self._tags(further_tags)[1]:
            more.append(f"{num_tags} tags left out")
        return [*self.notes, *(f"left out of {each}" for each in left_out), *more]

    def _tags(self, further: Iterable[str]) -> tuple[list[str], int]:
        """Return the tags that are kept, and how many are not; further ones have precedence."""
        last = _distinct_tags(further)
        num_own = min(MAX_OWN_TAGS, max(0, MAX_TAGS - len(last)))
        own = _distinct_tags(self.tags)
        kept = [*dict.fromkeys([*own[:num_own], *last])][:MAX_TAGS]
        return kept, len({*own, *last}) - len(kept)

    def _parameters(self) -> Iterable[tuple[str, Json]]:
        for name, value in list(self.parameters.items())[:MAX_PARAMETERS]:
            text = value if isinstance(value, str) else json.dumps(value)
            if not _is_json(value):
                value = text
            if len(text) > MAX_PARAMETER_CHARS:
                value = text[:MAX_PARAMETER_CHARS]
            elif isinstance(value, str):
                value = printable(value)
            yield printable(name)[:200] or "parameter", value


def metric_name(name: str) -> str:
    """Return a name that is allowed here: what is too long ends with a digest of the name."""
    plain = printable(name)
    if plain and len(plain) <= MAX_NAME and plain == name:
        return name
    return f"{plain[: MAX_NAME - 9]}-{sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _is_json(value: Json) -> bool:
    """Whether a value has no NaN and no infinity, which JSON does not know."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _distinct_tags(tags: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(tag for each in tags if (tag := printable(each)[:MAX_TAG]))]


def printable(text: str) -> str:
    """Return the text with spaces for all characters that cannot be printed."""
    text = text.encode("utf-8", "replace").decode()
    return re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()


def flattened(values: Mapping[str, Json], prefix: str = "") -> Iterable[tuple[str, Json]]:
    """Yield the values of nested mappings by dotted path."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def small_text(path: Path) -> str:
    """Return the text of a small file. Raises RunUnreadable, OSError."""
    with path.open("rb") as file:
        content = file.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise RunUnreadable(f"{path.name} has more than {MAX_TEXT_BYTES} bytes")
    return content.decode("utf-8", "replace")


def _iso(at: float) -> str:
    at = at if MIN_TIME <= at <= MAX_TIME else 0.0
    return datetime.fromtimestamp(at, UTC).isoformat()
