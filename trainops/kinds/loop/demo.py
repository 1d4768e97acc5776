"""A training loop of a minute."""

from trainops.kind import Demo
from trainops.kinds.loop.recipes.digits import RECIPE

DEMO = Demo(
    name="Handwritten digits, own loop",
    config={**RECIPE.example, "parameters": {"epochs": 200}},
)
