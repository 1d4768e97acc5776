"""Columns of datasets, as the validation of configs and parameters sees them."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypedDict


class DescribedColumn(TypedDict):
    """A column of an uploaded table."""

    name: str
    type: str
    min: object  # None: it has no order, or no value
    max: object
    distinct: int | None  # number of different values; None: too many to count


DescribedColumns: TypeAlias = Mapping[str, Sequence[DescribedColumn]]  # by dataset id
