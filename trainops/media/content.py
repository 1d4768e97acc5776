"""Checks of items that another process sent: it runs code of recipes, or is on another machine."""

from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from trainops.media import encoding, items
from trainops.media.errors import MediaError
from trainops.media.limits import (
    MAX_BINS,
    MAX_CAPTION,
    MAX_CELL,
    MAX_CLASSES,
    MAX_COLUMNS,
    MAX_ITEM_BYTES,
    MAX_ITEMS,
    MAX_LABEL,
    MAX_NAME,
    MAX_ROWS,
)

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[StrictStr, Field(max_length=MAX_CELL)]
Label = Annotated[StrictStr, Field(max_length=MAX_LABEL)]
Cell = StrictBool | StrictInt | Finite | Text | None


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Histogram(_Content):
    edges: Annotated[list[Finite], Field(min_length=2, max_length=MAX_BINS + 1)]
    counts: list[NonNegativeInt]
    num_not_finite: NonNegativeInt

    @model_validator(mode="after")
    def _has_bins(self) -> Self:
        if len(self.edges) != len(self.counts) + 1:
            problem = f"got {len(self.edges)} edges and {len(self.counts)} counts"
            raise ValueError(f"{problem}; allowed: one edge more than counts")
        return self


class _Table(_Content):
    columns: Annotated[list[Text], Field(min_length=1, max_length=MAX_COLUMNS)]
    rows: Annotated[list[list[Cell]], Field(max_length=MAX_ROWS)]

    @model_validator(mode="after")
    def _has_whole_rows(self) -> Self:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"got a row of {len(row)}; allowed: {len(self.columns)} cells")
        return self


class _ConfusionMatrix(_Content):
    labels: Annotated[list[Label], Field(min_length=1, max_length=MAX_CLASSES)]
    counts: list[list[NonNegativeInt]]

    @model_validator(mode="after")
    def _is_square(self) -> Self:
        size = len(self.labels)
        if len(self.counts) != size or any(len(row) != size for row in self.counts):
            raise ValueError(f"got rows of other lengths; allowed: {size} x {size}, as labels")
        return self


MODELS: dict[str, type[_Content]] = {
    items.HISTOGRAM: _Histogram, items.TABLE: _Table, items.CONFUSION_MATRIX: _ConfusionMatrix,
}  # fmt: skip


def require_sound(item: items.MediaItem) -> None:
    """Raise MediaError unless an item is one that `log` could have made."""
    if not 1 <= len(item.name) <= MAX_NAME or not item.name.isprintable():
        allowed = f"1 to {MAX_NAME} printable characters"
        raise MediaError(f"name: got {item.name!r:.80}; allowed: {allowed}")
    if not 0 <= item.index < MAX_ITEMS:
        raise MediaError(f"index: got {item.index}; allowed: 0 to {MAX_ITEMS - 1}")
    if len(item.caption) > MAX_CAPTION:
        problem = f"caption: got {len(item.caption)} characters"
        raise MediaError(f"{problem}; allowed: up to {MAX_CAPTION}")
    if len(item.content) > MAX_ITEM_BYTES:
        problem = f"content: got {len(item.content)} bytes"
        raise MediaError(f"{problem}; allowed: up to {MAX_ITEM_BYTES}")
    match item.type:
        case items.IMAGE:
            encoding.require_png(item.content)
        case items.AUDIO:
            encoding.require_wav(item.content)
        case _:
            _require_json(item)


def _require_json(item: items.MediaItem) -> None:
    model = MODELS.get(item.type)
    if model is None:
        raise MediaError(f"type: got {item.type!r:.40}; allowed: {', '.join(items.TYPES)}")
    try:
        model.model_validate_json(item.content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or item.type
        raise MediaError(f"content: {place}: {first['msg']}") from None
