"""Training: a neural network learns from examples."""

from trainops.kind import Kind, Objective
from trainops.learning.thresholds import EPOCH_INTERVAL

RECIPES = "trainops.kinds.training.recipes"

KIND = Kind(
    name="training",
    label="Training",
    description="A neural network is trained on examples",
    order=10,
    unit="step",
    config="trainops.kinds.training.config:TrainingConfig",
    job="trainops.kinds.training.job:TrainingJob",
    positions="trainops.kinds.training.position",
    demo="trainops.kinds.training.demo:DEMO",
    adapt="trainops.kinds.training.adapting:adapt",
    recipes=(
        f"{RECIPES}.digits:RECIPE",
        f"{RECIPES}.tabular:RECIPE",
        f"{RECIPES}.images:RECIPE",
        f"{RECIPES}.segmentation:RECIPE",
        f"{RECIPES}.price_direction:RECIPE",
    ),
    files="trainops.kinds.training.files.descriptor:FILES",
    length="epochs",
    has_weights=True,
    objective=Objective("best.value"),
    columns=("best.value", "epochs"),
    thresholds=(EPOCH_INTERVAL,),
)
