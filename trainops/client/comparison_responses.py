"""The types of the answer of `operations/compare`; see `responses`."""

from typing import TypedDict


class ComparedOperation(TypedDict):
    """One of the operations of a comparison."""

    operation_id: str
    name: str
    status: str
    unit: str
    step: int
    percent: float
    problem: str


class Difference(TypedDict):
    """A path whose values differ, with the values by operation id."""

    path: str
    values: dict[str, object]


class PartDifferences(TypedDict):
    """What differs in the config, the code, the data or the environment."""

    part: str
    rows: list[Difference]


class ComparedValue(TypedDict):
    """The value of one operation and its difference to the baseline."""

    value: float | str  # text where not finite
    delta: float | None


class ComparedValues(TypedDict):
    """The final or best value of a metric, or a figure of the results, by operation id."""

    name: str
    what: str
    mode: str | None
    values: dict[str, ComparedValue]
    best: list[str]


class Comparison(TypedDict):
    """Operations side by side."""

    baseline: str
    operations: list[ComparedOperation]
    differences: list[PartDifferences]
    values: list[ComparedValues]
