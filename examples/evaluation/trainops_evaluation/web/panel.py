"""The panel of an evaluation's page."""

from collections.abc import Mapping
from typing import Any


def scores(subject: Any) -> Mapping[str, Any] | None:
    """Return the means by name; None before the evaluation has ended."""
    result = dict(subject.operation.result or {})
    examples = result.pop("examples", None)
    return {"examples": examples, "scores": sorted(result.items())} if result else None
