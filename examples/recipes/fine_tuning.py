"""Fine-tuning of a model of Hugging Face transformers; its code is in fine_tuning_loop."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import DirectoryId, Strict


class Parameters(Strict):
    model: DirectoryId = Field(description="Registered directory that save_pretrained wrote.")
    texts: DirectoryId = Field(description='JSON lines {"text": "…", "label": 0}.')
    classes: int = Field(2, ge=2, le=10_000, description="Number of labels, from 0.")
    epochs: int = Field(4, ge=1, le=10_000, description="Number of passes over the texts.")
    frozen_epochs: int = Field(1, ge=0, description="Epochs in which only the head is trained.")
    batch_size: int = Field(16, ge=1, le=4096, description="Number of texts per batch.")
    max_tokens: int = Field(64, ge=2, le=8192, description="Longer texts are cut.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Learning rate of AdamW.")
    validation_fraction: float = Field(0.2, gt=0, lt=1, description="Part that is held out.")


RECIPE = Recipe(
    name="fine_tuning",
    kind="loop",
    label="Fine-tuning, Hugging Face",
    description="Fine-tunes a registered model to label texts",
    parameters="examples.recipes.fine_tuning:Parameters",
    build="examples.recipes.fine_tuning_loop:train",
    example={
        "recipe": "fine_tuning",
        "parameters": {"model": "ds_0000000000000000", "texts": "ds_0000000000000001"},
        "monitor": "val_accuracy",
        "mode": "max",
        "threads": 1,
    },
)
