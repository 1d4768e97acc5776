"""Uploaded images, stored as NPZ, spread over clients."""

from trainops.recipes import Recipe

RECIPE = Recipe(
    name="federated_images",
    kind="federated",
    label="Images, federated",
    description="Classifies uploaded images (NPZ), distributed over clients",
    parameters="trainops.learning.tasks.images:ImagesParameters",
    build="trainops.kinds.federated.recipes.images_model:build",
    example={
        "recipe": "federated_images",
        "parameters": {"dataset": "ds_0000000000000000"},
        "rounds": 20,
        "clients": 10,
        "partition": {"by": "dirichlet", "alpha": 0.5},
        "monitor": "val_accuracy",
        "mode": "max",
    },
)
