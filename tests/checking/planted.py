"""Recipes that each forget one piece of state, one that forgets none, and an uncertain one."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict

LOOPS = (
    "nothing", "counter", "own_generator", "worker_numpy", "scheduler", "ema", "iterable", "sets",
    "clock", "running_sum", "unseeded", "kept_attribute", "global_counter",
    "dataset_counter", "nested_sum", "cycle", "weights_dict", "late_generator", "epoch_scheduler",
    "date", "stream", "ranks", "divided", "printing", "scaled", "lazy",
    "counted", "zipped",
)  # fmt: skip


class Parameters(Strict):
    epochs: int = Field(4, ge=1)
    drop_epochs: int = Field(2, ge=1)
    forgets: bool = False
    fails_in_rank: int = 0


def recipe_of(name: str) -> Recipe:
    return Recipe(
        name=f"forgets_{name}",
        kind="loop",
        label=name,
        description="For tests",
        parameters="tests.checking.planted:Parameters",
        build=f"tests.checking.planted_loops:{name}",
        example={"recipe": f"forgets_{name}", "threads": 1},
    )


class IngredientParameters(Strict):
    """Empty."""


INGREDIENTS = Recipe(
    name="forgets_ingredients",
    kind="training",
    label="Ingredients",
    description="For tests",
    parameters="tests.checking.planted:IngredientParameters",
    build="tests.checking.planted_loops:ingredients",
    example={"recipe": "forgets_ingredients", "epochs": 3, "batch_size": 8, "threads": 1},
)
(
    NOTHING, COUNTER, OWN_GENERATOR, WORKER_NUMPY, SCHEDULER, EMA, ITERABLE, SETS, CLOCK,
    RUNNING_SUM, UNSEEDED, KEPT_ATTRIBUTE, GLOBAL_COUNTER, DATASET_COUNTER, NESTED_SUM, CYCLE,
    WEIGHTS_DICT, LATE_GENERATOR, EPOCH_SCHEDULER, DATE, STREAM, RANKS, DIVIDED, PRINTING,
    SCALED, LAZY, COUNTED, ZIPPED,
) = map(recipe_of, LOOPS)  # fmt: skip
NAMES = (*(name.upper() for name in LOOPS), "INGREDIENTS")
