"""Images in which something is to be outlined, spread over clients."""

from trainops.recipes import Recipe

RECIPE = Recipe(
    name="federated_segmentation",
    kind="federated",
    label="Segmentation, federated",
    description="Segments uploaded images (NPZ) or generated phantoms, whose scanners "
    "differ by site, with a U-Net (Dice)",
    parameters="trainops.learning.tasks.segmentation:SegmentationParameters",
    build="trainops.kinds.federated.recipes.segmentation_model:build",
    example={
        "recipe": "federated_segmentation",
        "rounds": 20,
        "local_epochs": 3,
        "optimizer": "adam",
        "learning_rate": 0.01,
        "batch_size": 8,
        "partition": {"by": "column", "column": "site"},
        "monitor": "val_dice",
        "mode": "max",
    },
)
