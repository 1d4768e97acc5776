"""Outline what is in an image: in one's own, uploaded as NPZ, or in generated scans."""

from collections.abc import Mapping

from pydantic import Field

from trainops.learning.tasks.images import NormName, lacking
from trainops.runtime.columns import DescribedColumns
from trainops.runtime.config import DatasetId, Strict


class SegmentationParameters(Strict):
    """The images, uploaded or generated, and the small U-Net that outlines them."""

    dataset: DatasetId | None = Field(
        None, description="Uploaded NPZ with images and masks; by default phantoms are generated."
    )
    images: int = Field(240, ge=10, le=100_000, description="Number of phantoms (generated only).")
    size: int = Field(
        32, ge=16, le=256, multiple_of=4, description="Side length in pixels (generated only)."
    )
    noise: float = Field(0.15, ge=0, le=2, description="Scanner noise (generated only).")
    sites: int = Field(
        4,
        ge=1,
        le=100,
        description="Number of scanners, each with its own brightness (generated only).",
    )
    channels: int = Field(
        8, ge=2, le=128, multiple_of=2, description="Channels of the first level of the U-Net."
    )
    norm: NormName = Field(
        "group", description="Normalization layers; batch is not allowed with privacy."
    )

    def check_columns(self, columns: DescribedColumns) -> Mapping[str, str]:
        return lacking(self.dataset, columns, "mask") if self.dataset else {}
