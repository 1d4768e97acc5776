"""Text, one character after the other: a small transformer; see characters_module."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from trainops.kinds.loop.settings import ModuleParameters, OptimizerSettings
from trainops.recipes import Recipe
from trainops.runtime.config import DatasetId, DirectoryId


class Parameters(ModuleParameters):
    directory: DirectoryId | None = Field(
        None, description="Registered directory with text files; or `dataset`."
    )
    dataset: DatasetId | None = Field(
        None, description="Uploaded text, or a table with a column of text; or `directory`."
    )
    column: str = Field(
        "text", min_length=1, max_length=200, description="Column of the text (`dataset` only)."
    )
    batch_size: int = Field(32, ge=1, le=4096, description="Number of pieces of text per batch.")
    length: int = Field(64, ge=2, le=4096, description="Number of characters per piece.")
    width: int = Field(64, ge=4, le=4096, multiple_of=4, description="Size of the embeddings.")
    layers: int = Field(2, ge=1, le=64, description="Number of transformer layers.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout rate.")
    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=3e-3)

    @field_validator("dataset")
    @classmethod
    def _is_the_only_text(cls, value: str | None, info: ValidationInfo) -> str | None:
        if "directory" in info.data and (value is None) == (info.data["directory"] is None):
            raise ValueError("allowed: either a dataset or a directory")
        return value

    def check_columns(
        self, columns: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> Mapping[str, str]:
        types = {each["name"]: each["type"] for each in columns.get(self.dataset or "", ())}
        if not types or types.get(self.column) in ("text", "category"):
            return {}
        allowed = [name for name, kind in types.items() if kind in ("text", "category")]
        problem = f"got {self.column!r}; allowed: {', '.join(allowed) or 'a dataset with text'}"
        return {"column": problem}


RECIPE = Recipe(
    name="characters",
    kind="loop",
    label="Characters of a text",
    description="Predicts the next character of an uploaded text, or of the text files of a "
    "directory, by a transformer",
    parameters="trainops.kinds.loop.recipes.characters:Parameters",
    build="trainops.kinds.loop.recipes.characters_module:train",
    example={
        "recipe": "characters",
        "parameters": {"directory": "ds_0000000000000000", "epochs": 5},
        "threads": 1,
    },
)
