"""Walks: all of a stage start at one value, and the mean of their ends starts the next stage."""

from trainops.kind import Kind, Objective

PACKAGE = "tests.further_kind.walks"

KIND = Kind(
    name="walks",
    label="Walks",
    description="Walks of a stage start at the mean of the stage before",
    unit="stage",
    config=f"{PACKAGE}.config:WalksConfig",
    job=f"{PACKAGE}.job:WalksJob",
    positions=f"{PACKAGE}.position",
    objective=Objective("value", "min"),
    ports=frozenset({"subtasks"}),
    subtask=f"{PACKAGE}.job:WalkJob",
    group="stage",
)
