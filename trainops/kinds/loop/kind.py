"""Training loops: a generator function that trains, and yields where it may be stopped."""

from trainops.kind import Kind, Objective
from trainops.learning.thresholds import EPOCH_INTERVAL

MAX_STEPS = "max_steps"
LENGTHS = (  # of loops, Lightning's Trainer and that of transformers; a number of steps goes first
    "parameters.epochs", f"parameters.{MAX_STEPS}", "parameters.max_epochs",
    "parameters.num_train_epochs",
)  # fmt: skip
KIND = Kind(
    name="loop",
    label="Training loop",
    description="A training loop written as a Python generator function",
    order=15,
    unit="step",
    config="trainops.kinds.loop.config:LoopConfig",
    job="trainops.kinds.loop.job:LoopJob",
    positions="trainops.kinds.loop.position",
    demo="trainops.kinds.loop.demo:DEMO",
    adapt="trainops.kinds.loop.adapting:adapt",
    recipes=(
        "trainops.kinds.loop.recipes.digits:RECIPE",
        "trainops.kinds.loop.recipes.digit_classifier:RECIPE",
        "trainops.kinds.loop.recipes.digits_gan:RECIPE",
        "trainops.kinds.loop.recipes.characters:RECIPE",
        "trainops.kinds.loop.recipes.image_folders:RECIPE",
        "trainops.kinds.loop.recipes.large_table:RECIPE",
    ),
    length=LENGTHS,
    has_weights=True,
    ports=frozenset({"devices"}),
    objective=Objective("best.value"),
    columns=("best.value", "epochs"),
    thresholds=(EPOCH_INTERVAL,),
)
