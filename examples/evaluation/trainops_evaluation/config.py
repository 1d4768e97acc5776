"""The config of an evaluation. Without torch: the web process validates with it."""

from typing import ClassVar

from pydantic import Field

from trainops.recipe_config import RecipeConfig


class EvaluationConfig(RecipeConfig):
    """How a model is scored."""

    kind: ClassVar[str] = "evaluation"

    batch_size: int = Field(256, ge=1, le=100_000, description="Examples in a step.")
