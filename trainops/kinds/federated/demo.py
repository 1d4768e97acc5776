"""Federated training of a minute."""

from trainops.kind import Demo
from trainops.kinds.federated.recipes.digits import RECIPE

DEMO = Demo(
    name="Digits at ten clients",
    config={**RECIPE.example, "rounds": 120},
)
