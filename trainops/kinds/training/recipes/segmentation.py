"""Outline what is in an image: in one's own, uploaded as NPZ, or in generated scans."""

from trainops.recipes import Recipe

RECIPE = Recipe(
    name="segmentation",
    kind="training",
    label="Segmentation",
    description="Segments uploaded images (NPZ) or generated phantoms with a U-Net (Dice)",
    parameters="trainops.learning.tasks.segmentation:SegmentationParameters",
    build="trainops.learning.tasks.segmentation_model:build",
    example={
        "recipe": "segmentation",
        "epochs": 30,
        "batch_size": 16,
        "learning_rate": 0.01,
        "optimizer": "adam",
        "monitor": "val_dice",
        "mode": "max",
    },
)
