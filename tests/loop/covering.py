"""Every form of training with every loader, window and precision: factors, and rows of them.

A row has one value of each factor. What cannot be had together is excluded by a rule with a name;
what this machine cannot compute is skipped, with the name of a rule as the reason.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product
from typing import Any, Literal

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict

Row = dict[str, Any]
INGREDIENTS = ("ingredients", "tensors")  # over datasets, and in memory


def num_gpus() -> int:
    import torch  # the web process reads recipes without it

    return torch.cuda.device_count()


FACTORS: Mapping[str, tuple[Any, ...]] = {
    "form": ("module", "loop", "lightning", "transformers", "ingredients", "tensors"),
    "loaders": (1, 3),
    "schedule": ("none", "sequential", "round_robin", "alternating", "weighted", "together"),
    "workers": (0, 2),
    "accumulation": (1, 3),
    "optimizers": (1, 2),
    "precision": ("fp32", "bf16", "fp16"),
    "ranks": (1, 2),
}
EXCLUDED: Mapping[str, Callable[[Row], bool]] = {
    "a schedule is of several loaders": lambda row: (
        (row["loaders"] == 1) != (row["schedule"] == "none")
    ),
    "Trainers and ingredients have one loader": lambda row: (
        row["loaders"] > 1 and row["form"] in ("transformers", *INGREDIENTS)
    ),
    "a batch of each loader together is what Lightning takes": lambda row: (
        row["loaders"] > 1 and (row["form"] == "lightning") != (row["schedule"] == "together")
    ),
    "ingredients over datasets have one optimizer": lambda row: (
        row["optimizers"] > 1 and row["form"] == "ingredients"
    ),
    "tensors need no workers": lambda row: row["workers"] > 0 and row["form"] == "tensors",
    "tensors are trained in fp32": lambda row: (
        row["precision"] != "fp32" and row["form"] == "tensors"
    ),
    "a Trainer has one optimizer": lambda row: (
        row["optimizers"] > 1 and row["form"] == "transformers"
    ),
    "tensors are trained by one rank": lambda row: row["ranks"] > 1 and row["form"] == "tensors",
    "Lightning scales no manual optimization": lambda row: (
        row["precision"] == "fp16" and row["form"] == "lightning" and row["optimizers"] > 1
    ),
}
UNAVAILABLE: Mapping[str, Callable[[Row], bool]] = {
    "fp16 needs a GPU for each rank": lambda row: (
        row["precision"] == "fp16" and num_gpus() < row["ranks"]
    ),
}


class Parameters(Strict):
    """A row, but for `ranks`, which is the field `processes` of the config."""

    form: Literal["module", "loop", "lightning", "transformers", "ingredients"] = "loop"
    loaders: int = 1
    schedule: Literal[
        "none", "sequential", "round_robin", "alternating", "weighted", "together"
    ] = "none"
    workers: int = 0
    accumulation: int = 1
    optimizers: int = 1
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    epochs: int = Field(3, ge=1)


RECIPE = Recipe(
    name="covering",
    kind="loop",
    label="Covering",
    description="For tests",
    parameters="tests.loop.covering:Parameters",
    build="tests.loop.covering_forms:train",
    example={"recipe": "covering", "threads": 1},
)


def rows() -> Iterator[Row]:
    """Yield the whole product without what is excluded."""
    for values in product(*FACTORS.values()):
        row = dict(zip(FACTORS, values, strict=True))
        if not any(excludes(row) for excludes in EXCLUDED.values()):
            yield row


def pairs(row: Row) -> set[tuple[Any, ...]]:
    return set(combinations(row.items(), 2))


def unavailable(row: Row) -> str:
    """Return why this machine cannot compute a row; empty if it can."""
    return next((why for why, excludes in UNAVAILABLE.items() if excludes(row)), "")


def pairwise() -> list[Row]:
    """Return few rows in which all pairs of values meet that meet in any row; greedily.

    The first of them can be computed here, and have all pairs that can be had here.
    """
    found: list[Row] = []
    for candidates in ([each for each in rows() if not unavailable(each)], list(rows())):
        missing = set().union(*map(pairs, candidates)).difference(*map(pairs, found))
        while missing:
            found.append(max(candidates, key=lambda row: len(pairs(row) & missing)))
            missing -= pairs(found[-1])
    return found
