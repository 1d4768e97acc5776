"""A training of two minutes."""

from trainops.kind import Demo
from trainops.kinds.training.recipes.digits import RECIPE

DEMO = Demo(
    name="Handwritten digits",
    config={**RECIPE.example, "epochs": 900},
)
