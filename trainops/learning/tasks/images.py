"""Images of one's own, uploaded as NPZ: tell their classes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from trainops.runtime.config import DatasetId, Strict

NormName = Literal["none", "group", "batch"]


class ImagesParameters(Strict):
    """The images, and the small convolutional network that tells them apart."""

    dataset: DatasetId = Field(description="The uploaded NPZ, with images and labels")
    channels: int = Field(
        16, ge=2, le=256, multiple_of=2, description="Of the first convolution; then doubled"
    )
    hidden: int = Field(64, ge=1, le=4096, description="Units before the last layer")
    norm: NormName = Field("none", description="batch cannot be had with privacy")
    dropout: float = Field(0.25, ge=0, lt=1, description="Share of units left out while training")
    validation_fraction: float = Field(0.2, gt=0, lt=1, description="Share of images held out")

    def check_columns(
        self, columns: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> Mapping[str, str]:
        return lacking(self.dataset, columns, "label")


def lacking(
    dataset: str, columns: Mapping[str, Sequence[Mapping[str, Any]]], needed: str
) -> dict[str, str]:
    """Return what a dataset lacks that is to be images with labels or masks; nothing if all is."""
    names = [column["name"] for column in columns.get(dataset, ())]
    types = {column["type"] for column in columns.get(dataset, ())}
    if not names:
        return {}
    if "image" not in types:
        return {"dataset": f"got {dataset}; it is a table; allowed: images, uploaded as NPZ"}
    if needed not in names:
        return {
            "dataset": f"got {dataset}; its images have no {needed}s, but {', '.join(names[1:])}; "
            f"allowed: an NPZ with {needed}s"
        }
    return {}
