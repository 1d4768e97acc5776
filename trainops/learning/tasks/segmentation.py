"""Outline what is in an image: in one's own, uploaded as NPZ, or in generated scans."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from trainops.learning.tasks.images import NormName, lacking
from trainops.runtime.config import DatasetId, Strict


class SegmentationParameters(Strict):
    """The images, uploaded or generated, and the small U-Net that outlines them."""

    dataset: DatasetId | None = Field(
        None, description="The uploaded NPZ, with images and masks; if none, phantoms are generated"
    )
    images: int = Field(240, ge=10, le=100_000, description="Of phantoms: how many")
    size: int = Field(32, ge=16, le=256, multiple_of=4, description="Of phantoms: pixels of a side")
    noise: float = Field(0.15, ge=0, le=2, description="Of phantoms: of the scanner")
    sites: int = Field(
        4, ge=1, le=100, description="Of phantoms: scanners with a brightness of their own"
    )
    channels: int = Field(8, ge=2, le=128, multiple_of=2, description="Of the first level")
    norm: NormName = Field("group", description="batch cannot be had with privacy")

    def check_columns(
        self, columns: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> Mapping[str, str]:
        return lacking(self.dataset, columns, "mask") if self.dataset else {}
