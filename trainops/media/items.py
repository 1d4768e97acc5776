"""Logged items, encoded: what goes from the recipe's process to the database."""

from dataclasses import dataclass

IMAGE, AUDIO = "image", "audio"
HISTOGRAM, TABLE, CONFUSION_MATRIX = "histogram", "table", "confusion_matrix"
CONTENT_TYPES = {IMAGE: "image/png", AUDIO: "audio/wav"}  # of all others: JSON
TYPES = (IMAGE, HISTOGRAM, TABLE, CONFUSION_MATRIX, AUDIO)


@dataclass(frozen=True, slots=True)
class MediaItem:
    """One image, histogram, table, matrix or clip of a step.

    is_early: logged in a step before its evaluation, which a resume may begin anew without
        computing the rest of the step again.
    index: its place among those that were logged together.
    """

    step: int
    is_early: bool
    name: str
    index: int
    type: str
    caption: str
    content: bytes  # PNG, WAV or JSON

    @property
    def position(self) -> int:
        return position_of(self.step, is_early=self.is_early)


def position_of(step: int, *, is_early: bool) -> int:
    """Return a number that orders what was logged in a step: before its evaluation, and then."""
    return 2 * step + (not is_early)
