"""A small GPT-2 on letters, by a Hugging Face Trainer; its code is in letters_trainer."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    epochs: int = Field(5, ge=1, le=10_000, description="Number of epochs.")
    learning_rate: float = Field(5e-3, gt=0, le=1, description="Initial learning rate.")


RECIPE = Recipe(
    name="letters",
    kind="loop",
    label="Letters, Hugging Face",
    description="Trains a small GPT-2 to continue the alphabet",
    parameters="examples.recipes.letters:Parameters",
    build="examples.recipes.letters_trainer:train",
    example={"recipe": "letters", "monitor": "eval_loss", "threads": 1},
)
