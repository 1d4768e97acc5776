"""The recipe of evaluations: which model is scored, on which examples."""

from typing import Annotated, Literal

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import DatasetId, IsModel, Strict


class EvaluationParameters(Strict):
    """The model, and the examples."""

    operation: Annotated[str, IsModel("training")] = Field(
        description="The COMPLETED training that made the model."
    )
    weights: Literal["best", "last"] = Field(
        "best", description="The weights of its best epoch, or of its last."
    )
    dataset: DatasetId | None = Field(
        None, description="The dataset; required if the training read one."
    )
    examples: Literal["validation", "all"] = Field(
        "validation", description="The examples held out by the recipe, or all of them."
    )


RECIPE = Recipe(
    name="evaluation",
    kind="evaluation",
    label="Evaluation",
    description="Scores the model of a finished training",
    parameters="trainops_evaluation.recipe:EvaluationParameters",
    build="trainops_evaluation.job:EvaluationJob",
    example={
        "recipe": "evaluation",
        "parameters": {"operation": "op_training_20260101_000000_000000"},
    },
)
