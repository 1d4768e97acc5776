"""A recipe of a Hugging Face Trainer that several ranks train, for tests."""

from tests.loop.hugging import Parameters as One
from trainops.recipes import Recipe


class Parameters(One):
    counts_items: bool = True
    shards_itself: bool = False


RECIPE = Recipe(
    name="ranked_hugging",
    kind="loop",
    label="Hugging Face, ranks",
    description="For tests",
    parameters="tests.ranks.hugging:Parameters",
    build="tests.ranks.hugging_trainer:train",
    example={"recipe": "ranked_hugging", "threads": 1, "processes": 2},
)
