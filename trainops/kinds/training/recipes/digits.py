"""Handwritten digits: the recipe that works out of the box."""

from trainops.recipes import Recipe

RECIPE = Recipe(
    name="digits",
    kind="training",
    label="Handwritten digits",
    description="Classifies 1,797 scanned digits of 8 x 8 pixels (scikit-learn) with a small CNN",
    parameters="trainops.learning.tasks.digits:DigitsParameters",
    build="trainops.learning.tasks.digits_model:build",
    example={
        "recipe": "digits",
        "epochs": 150,  # some 20 seconds: long enough to watch, cancel and resume
        "threads": 1,  # so small a network gains nothing from two, and waits where cores are busy
        "batch_size": 64,
        "learning_rate": 2e-3,
        "optimizer": "adamw",
        "scheduler": "cosine",
        "checkpoint": {"every_epochs": 5},
    },
)
