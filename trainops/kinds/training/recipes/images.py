"""Uploaded images, stored as NPZ: tell their classes."""

from trainops.recipes import Recipe

RECIPE = Recipe(
    name="images",
    kind="training",
    label="Images",
    description="Classifies uploaded images (NPZ) with a small convolutional network",
    parameters="trainops.learning.tasks.images:ImagesParameters",
    build="trainops.learning.tasks.images_model:build",
    example={
        "recipe": "images",
        "parameters": {"dataset": "ds_0000000000000000"},
        "epochs": 20,
        "batch_size": 64,
        "learning_rate": 2e-3,
        "optimizer": "adamw",
        "scheduler": "cosine",
        "monitor": "val_accuracy",
        "mode": "max",
    },
)
