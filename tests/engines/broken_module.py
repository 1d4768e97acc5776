"""A module with a recipe that raises when it is imported."""

RECIPE = 1 / 0
