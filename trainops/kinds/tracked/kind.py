"""Runs of other tools: nothing computes them here, so there is no job."""

from trainops.kind import Kind, Objective

KIND = Kind(
    name="tracked",
    label="Imported run",
    description="A run of TensorBoard, MLflow or Weights & Biases, with its curves and parameters",
    order=90,
    unit="step",
    config="trainops.kinds.tracked.config:TrackedConfig",
    positions="trainops.kinds.tracked.position",
    objective=Objective("points", "max"),
    length="",
)
