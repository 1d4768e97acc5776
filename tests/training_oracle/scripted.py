"""A recipe whose validation metric is read from a list: early stopping can be counted by hand."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    scores: list[float] = Field(min_length=1, description="val_score of each epoch in turn")
    others: list[float] = Field([], description="val_other of each epoch in turn")
    examples: int = Field(6, ge=1, le=100)
    not_finite: dict[str, str] = Field(
        default_factory=dict, description="nan, inf or -inf instead, by the epoch (from 0)"
    )


RECIPE = Recipe(
    name="scripted_scores",
    kind="training",
    label="Scripted",
    description="",
    parameters="tests.training_oracle.scripted:Parameters",
    build="tests.training_oracle.scripted_model:build",
    example={"recipe": "scripted_scores", "parameters": {"scores": [1.0]}, "monitor": "val_score"},
)
