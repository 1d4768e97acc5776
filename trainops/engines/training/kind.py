"""Training: a neural network learns from examples."""

from trainops.kind import Kind, Objective

RECIPES = "trainops.engines.training.recipes"

KIND = Kind(
    name="training",
    label="Training",
    description="A neural network learns from examples, one optimizer step after another",
    order=10,
    unit="step",
    config="trainops.engines.training.config:TrainingConfig",
    job="trainops.engines.training.job:TrainingJob",
    positions="trainops.engines.training.position",
    adapt="trainops.engines.training.adapting:adapt",
    recipes=(
        f"{RECIPES}.digits:RECIPE",
        f"{RECIPES}.tabular:RECIPE",
        f"{RECIPES}.images:RECIPE",
        f"{RECIPES}.segmentation:RECIPE",
        f"{RECIPES}.price_direction:RECIPE",
    ),
    files="trainops.engines.training.files.descriptor:FILES",
    objective=Objective("best.value"),
    columns=("best.value", "epochs"),
    defaults={"checkpoint.every_epochs": "training_epoch_interval"},
)
