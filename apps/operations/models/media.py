"""What recipes logged besides numbers: images, histograms, tables, confusion matrices, audio.

The bytes are in the database, so that they are durable, retired, fenced and deleted with the metric
points of their steps, wherever the worker runs (ADR 64).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from django.db import models

from trainops.media.items import MediaItem


@dataclass(frozen=True, slots=True)
class MediaRetention:
    """Limits of one operation."""

    max_steps: int  # per name
    max_bytes: int  # per name
    max_names: int


class Media(models.Model):
    """One item that an attempt logged in one step.

    A resume retires those that do not lead to where it starts, as metric points.
    """

    # Without an index of its own: those below serve it.
    operation = models.ForeignKey(
        "operations.Operation", models.CASCADE, related_name="media", db_index=False
    )
    attempt = models.PositiveIntegerField()
    name = models.CharField(max_length=64)
    step = models.PositiveBigIntegerField()
    position = models.PositiveBigIntegerField(
        help_text="Twice the step, and one more unless its evaluation came later."
    )
    index = models.PositiveSmallIntegerField(help_text="Place among those logged together.")
    type = models.CharField(max_length=16)
    caption = models.CharField(max_length=200, blank=True)
    num_bytes = models.PositiveIntegerField()
    content = models.BinaryField(help_text="PNG, WAV or JSON.")
    at = models.DateTimeField()
    retired_by = models.PositiveIntegerField(null=True, blank=True)
    width = models.PositiveBigIntegerField(
        default=1, help_text="Positions of which the first item is kept."
    )

    class Meta:
        ordering = ["position", "index"]
        verbose_name_plural = "media"
        indexes = [models.Index(fields=["operation", "id"], name="media_since")]
        constraints = [
            models.UniqueConstraint(
                fields=["operation", "name", "position", "attempt", "index"],
                name="one_media_item_per_place",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name}@{self.step}"

    @classmethod
    def of(cls, item: MediaItem, operation_id: str, attempt: int, at: float) -> Self:
        """Return the row of an item. at: Unix time."""
        return cls(
            operation_id=operation_id,
            attempt=attempt,
            name=item.name,
            step=item.step,
            position=item.position,
            index=item.index,
            type=item.type,
            caption=item.caption,
            num_bytes=len(item.content),
            content=item.content,
            at=datetime.fromtimestamp(at, UTC),
        )

    def item(self) -> MediaItem:
        is_early = self.position == 2 * self.step
        content = bytes(self.content)
        return MediaItem(
            self.step, is_early, self.name, self.index, self.type, self.caption, content
        )

    @classmethod
    def write(
        cls, operation_id: str, rows: Sequence["Media"], retention: MediaRetention
    ) -> set[str]:
        """Write rows, and thin the names that have too many. Return the names that are refused."""
        standing = Media.objects.filter(operation_id=operation_id, retired_by=None)
        widths = dict(standing.values_list("name").annotate(models.Max("width")).order_by())
        kept, refused = [], set()
        for row in rows:
            if row.name not in widths and len(widths) >= retention.max_names:
                refused.add(row.name)
                continue
            row.width = widths.setdefault(row.name, 1)
            kept.append(row)
        Media.objects.bulk_create(kept, ignore_conflicts=True, batch_size=100)
        for name in dict.fromkeys(row.name for row in kept):
            named = Media.objects.filter(operation_id=operation_id, name=name)
            _thin(named, widths[name], retention)
            _forget_retired(named, retention)
        return refused


def _thin(named: "models.QuerySet[Media]", width: int, retention: MediaRetention) -> None:
    """Keep the first position of each stretch, and the newest of all.

    Stretches begin at multiples of their width, the smallest power of two with which the limits
    hold, so what is kept follows from the steps alone, not from when they were written.
    """
    rows = named.filter(retired_by=None)
    sizes: dict[int, int] = {}  # bytes by position, in ascending order
    for position, num_bytes in rows.order_by("position").values_list("position", "num_bytes"):
        sizes[position] = sizes.get(position, 0) + num_bytes
    kept, found = _firsts(sizes, width), width
    while len(kept) > 1 and (
        len(kept) > retention.max_steps or sum(sizes[each] for each in kept) > retention.max_bytes
    ):
        found *= 2
        kept = _firsts(kept, found)
    if found > width:
        rows.update(width=found)
    gone = sizes.keys() - {*kept, max(sizes)} if sizes else ()
    if gone:
        rows.filter(position__in=gone).delete()


def _firsts(positions: Iterable[int], width: int) -> list[int]:
    """Return the first position of each stretch; they are given in ascending order."""
    firsts: dict[int, int] = {}
    for position in positions:
        firsts.setdefault(position // width, position)
    return list(firsts.values())


def _forget_retired(named: "models.QuerySet[Media]", retention: MediaRetention) -> None:
    """Delete the oldest of the retired rows beyond the limits."""
    retired = named.exclude(retired_by=None).order_by("-attempt", "-position", "index")
    positions: set[tuple[int, int]] = set()
    num_bytes, gone = 0, []
    for pk, attempt, position, size in retired.values_list(
        "id", "attempt", "position", "num_bytes"
    ):
        positions.add((attempt, position))
        num_bytes += size
        if len(positions) > retention.max_steps or num_bytes > retention.max_bytes:
            gone.append(pk)
    if gone:
        named.filter(id__in=gone).delete()
