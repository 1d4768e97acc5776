"""Text, one character after the other: a small transformer; see characters_module."""

from pydantic import Field

from trainops.kinds.loop.settings import ModuleParameters, OptimizerSettings
from trainops.recipes import Recipe
from trainops.runtime.config import DirectoryId


class Parameters(ModuleParameters):
    directory: DirectoryId = Field(description="Registered directory with the text files.")
    batch_size: int = Field(32, ge=1, le=4096, description="Number of pieces of text per batch.")
    length: int = Field(64, ge=2, le=4096, description="Number of characters per piece.")
    width: int = Field(64, ge=4, le=4096, multiple_of=4, description="Size of the embeddings.")
    layers: int = Field(2, ge=1, le=64, description="Number of transformer layers.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout rate.")
    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=3e-3)


RECIPE = Recipe(
    name="characters",
    kind="loop",
    label="Characters of a text",
    description="Predicts the next character of the text files of a directory by a transformer",
    parameters="trainops.kinds.loop.recipes.characters:Parameters",
    build="trainops.kinds.loop.recipes.characters_module:train",
    example={
        "recipe": "characters",
        "parameters": {"directory": "ds_0000000000000000", "epochs": 5},
        "threads": 1,
    },
)
