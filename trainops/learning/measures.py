"""Metrics of torchmetrics as measures; they are recognised without importing it."""

import sys

from trainops.lazy import load


def is_metric(thing: object) -> bool:
    """Whether something is a metric of torchmetrics, or a collection of them."""
    if "torchmetrics" not in sys.modules:
        return False
    kinds = (load("torchmetrics:Metric"), load("torchmetrics:MetricCollection"))
    return isinstance(thing, kinds)
