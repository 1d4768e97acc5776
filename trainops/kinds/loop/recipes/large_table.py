"""A table larger than memory, from a registered directory. The loop is in large_table_loop."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import DirectoryId, Strict


class Parameters(Strict):
    directory: DirectoryId = Field(description="Registered directory of Parquet files.")
    target: str = Field(min_length=1, max_length=200, description="Column of numbers to predict.")
    features: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Columns of numbers to predict from; by default all other ones.",
    )
    epochs: int = Field(5, ge=1, le=10_000, description="Number of passes over the rows.")
    batch_size: int = Field(256, ge=1, le=100_000, description="Number of rows per batch.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Learning rate of AdamW.")
    width: int = Field(64, ge=1, le=4096, description="Number of units of both hidden layers.")
    validation_fraction: float = Field(
        0.1, gt=0, le=0.9, description="Fraction of rows held out: the last ones."
    )


RECIPE = Recipe(
    name="large_table",
    kind="loop",
    label="Table larger than memory",
    description="Predicts a number from the other columns of Parquet files, row group by row group",
    parameters="trainops.kinds.loop.recipes.large_table:Parameters",
    build="trainops.kinds.loop.recipes.large_table_loop:train",
    example={
        "recipe": "large_table",
        "parameters": {"directory": "ds_0000000000000000", "target": "target", "epochs": 5},
        "log_every_steps": 10,
    },
)
