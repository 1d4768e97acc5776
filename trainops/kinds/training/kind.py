"""Training: a neural network learns from examples."""

from trainops.kind import Kind, Objective

RECIPES = "trainops.kinds.training.recipes"

KIND = Kind(
    name="training",
    label="Training",
    description="A neural network learns from examples, one optimizer step after another",
    order=10,
    unit="step",
    config="trainops.kinds.training.config:TrainingConfig",
    job="trainops.kinds.training.job:TrainingJob",
    positions="trainops.kinds.training.position",
    adapt="trainops.kinds.training.adapting:adapt",
    recipes=(
        f"{RECIPES}.digits:RECIPE",
        f"{RECIPES}.tabular:RECIPE",
        f"{RECIPES}.images:RECIPE",
        f"{RECIPES}.segmentation:RECIPE",
        f"{RECIPES}.price_direction:RECIPE",
    ),
    files="trainops.kinds.training.files.descriptor:FILES",
    objective=Objective("best.value"),
    columns=("best.value", "epochs"),
    defaults={"checkpoint.every_epochs": "training_epoch_interval"},
)
