"""Images in class folders, from a registered directory. The loop is in image_folders_loop."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import DirectoryId, Strict


class Parameters(Strict):
    directory: DirectoryId = Field(description="Registered directory of class folders of images.")
    folder: str = Field(
        "", max_length=200, description="Folder of the class folders within the directory."
    )
    epochs: int = Field(20, ge=1, le=10_000, description="Number of passes over the images.")
    batch_size: int = Field(32, ge=1, le=4096, description="Number of images per batch.")
    learning_rate: float = Field(2e-3, gt=0, le=1, description="Learning rate of AdamW.")
    side: int = Field(32, ge=8, le=512, description="Height and width to which images are resized.")
    is_grey: bool = Field(False, description="Read images with one channel instead of three.")
    channels: int = Field(16, ge=1, le=512, description="Channels of the first convolution.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout before the last layer.")
    validation_fraction: float = Field(0.2, gt=0, lt=1, description="Fraction of images held out.")
    num_workers: int = Field(0, ge=0, le=64, description="Processes that decode images.")
    skip_undecodable: bool = Field(
        False,
        description="Leave images that cannot be decoded out of their batches and count them.",
    )


RECIPE = Recipe(
    name="image_folders",
    kind="loop",
    label="Images in folders",
    description="Classifies images of a registered directory with a small convolutional network",
    parameters="trainops.kinds.loop.recipes.image_folders:Parameters",
    build="trainops.kinds.loop.recipes.image_folders_loop:train",
    example={
        "recipe": "image_folders",
        "parameters": {"directory": "ds_0000000000000000", "epochs": 20},
        "monitor": "val_accuracy",
        "mode": "max",
    },
)
