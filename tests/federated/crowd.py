"""A small federated recipe that uses everything: every random stream, running statistics."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class CrowdParameters(Strict):
    examples: int = Field(60, ge=8)
    norm: bool = Field(False, description="Batch normalisation")
    dropout: float = Field(0.2, ge=0, lt=1)
    frozen: bool = Field(False, description="The first layer is not trained")
    unsaved: bool = Field(False, description="Counts its batches where no state dict has it")
    tied: bool = Field(False, description="Two layers with the same weights")
    measured: bool = Field(False, description="Keep a constant that was measured on the data")
    decides: bool = Field(False, description="Goes by what the numbers are")
    explode_in_batch: int | None = None
    own_optimizers: bool = Field(False, description="Bring optimizers, as training may")
    own_schedulers: bool = Field(False, description="Bring schedules, as training may")
    batch_seconds: float = Field(0, ge=0, description="What a batch takes longer, in training")


RECIPE = Recipe(
    name="crowd",
    kind="federated",
    label="Crowd",
    description="Points in three classes",
    parameters="tests.federated.crowd:CrowdParameters",
    build="tests.federated.crowd_model:build",
    example={"recipe": "crowd"},
)
