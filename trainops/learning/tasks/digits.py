"""Handwritten digits: the recipe that works out of the box."""

from pydantic import Field

from trainops.runtime.config import Strict


class DigitsParameters(Strict):
    """The shape of the small convolutional network."""

    channels: int = Field(
        16,
        ge=1,
        le=256,
        description="Channels of the first convolution; later ones have twice as many.",
    )
    hidden: int = Field(64, ge=1, le=4096, description="Units of the hidden layer.")
    dropout: float = Field(0.25, ge=0, lt=1, description="Dropout rate.")
