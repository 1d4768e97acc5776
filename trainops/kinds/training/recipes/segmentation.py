"""Outline what is in an image: in one's own, uploaded as NPZ, or in generated scans."""

from trainops.recipes import Recipe

RECIPE = Recipe(
    name="segmentation",
    kind="training",
    label="Segmentation",
    description="A U-Net outlines what is marked in uploaded images (NPZ), or the organ in "
    "generated phantoms (Dice)",
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
