"""A table of your own: predict one column from the others."""

from trainops.recipes import Recipe

RECIPE = Recipe(
    name="tabular",
    kind="training",
    label="Table",
    description="Predicts a column of an uploaded table from the others, with a small network",
    parameters="trainops.learning.tasks.tabular:TabularParameters",
    build="trainops.learning.tasks.tabular_model:build",
    example={
        "recipe": "tabular",
        "parameters": {"dataset": "ds_0000000000000000", "target": "price"},
        "epochs": 30,
        "batch_size": 64,
        "early_stopping_patience": 5,
    },
)
