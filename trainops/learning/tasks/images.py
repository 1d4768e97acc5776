"""Uploaded images, stored as NPZ: tell their classes."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from trainops.runtime.columns import DescribedColumns
from trainops.runtime.config import DatasetId, Strict

NormName = Literal["none", "group", "batch"]


class ImagesParameters(Strict):
    """The images, and the small convolutional network that tells them apart."""

    dataset: DatasetId = Field(description="Uploaded NPZ with images and labels.")
    channels: int = Field(
        16,
        ge=2,
        le=256,
        multiple_of=2,
        description="Channels of the first convolution; later ones have twice as many.",
    )
    hidden: int = Field(64, ge=1, le=4096, description="Units of the hidden layer.")
    norm: NormName = Field(
        "none", description="Normalization layers; batch is not allowed with privacy."
    )
    dropout: float = Field(0.25, ge=0, lt=1, description="Dropout rate.")
    validation_fraction: float = Field(
        0.2, gt=0, lt=1, description="Share of the images held out for validation."
    )

    def check_columns(self, columns: DescribedColumns) -> Mapping[str, str]:
        return lacking(self.dataset, columns, "label")


def lacking(dataset: str, columns: DescribedColumns, needed: str) -> dict[str, str]:
    """Return what a dataset lacks that is to be images with labels or masks; nothing if all is."""
    names = [column["name"] for column in columns.get(dataset, ())]
    types = {column["type"] for column in columns.get(dataset, ())}
    if not names:
        return {}
    if "image" not in types:
        return {"dataset": f"got {dataset}, a table; allowed: images, uploaded as NPZ"}
    if needed not in names:
        return {
            "dataset": f"got {dataset}; it has no {needed}s, only {', '.join(names[1:])}; "
            f"allowed: an NPZ with {needed}s"
        }
    return {}
