"""A table of your own: predict one column from the others."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from trainops.runtime.columns import DescribedColumn, DescribedColumns
from trainops.runtime.config import DatasetId, Strict

Task = Literal["auto", "classification", "regression"]
NUMERIC = ("number", "integer")
PICTURES = ("image", "mask")


class TabularParameters(Strict):
    """Which column to predict, from which others, with how large a network."""

    dataset: DatasetId = Field(description="Uploaded table.")
    target: str = Field(min_length=1, description="Column to predict.")
    task: Task = Field(
        "auto",
        description="auto: classification for text, booleans and few distinct integers, else "
        "regression.",
    )
    drop_columns: list[str] = Field(
        default_factory=list, max_length=10_000, description="Columns to exclude."
    )
    hidden_sizes: list[int] = Field(
        default_factory=lambda: [64, 32], max_length=16, description="Units of each hidden layer."
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout rate.")
    validation_fraction: float = Field(
        0.2, gt=0, lt=1, description="Share of the rows held out for validation."
    )
    max_categories: int = Field(
        50,
        ge=2,
        le=10_000,
        description="Maximum distinct values of a category column; rarer values are merged.",
    )

    def check_columns(self, columns: DescribedColumns) -> Mapping[str, str]:
        described = columns.get(self.dataset, ())
        types = {column["name"]: column["type"] for column in described}
        if not types:
            return {}
        if pictures := [name for name, kind in types.items() if kind in PICTURES]:
            problem = f"got {self.dataset}; it contains images ({', '.join(pictures)}); allowed: "
            return {"dataset": f"{problem}a table; for images use an image recipe"}
        problems = {}
        if self.target not in types:
            problems["target"] = no_such_column([self.target], list(types))
        elif self.task == "regression" and types[self.target] not in NUMERIC:
            problems["target"] = (
                f"column {self.target!r} holds {types[self.target]}; regression needs numbers"
            )
        unused = {self.target, *self.drop_columns}
        if unknown := [name for name in self.drop_columns if name not in types]:
            problems["drop_columns"] = no_such_column(unknown, list(types))
        elif texts := [
            name for name in sorted(types.keys() - unused) if name in texts_of(described)
        ]:
            problems["drop_columns"] = (
                f"got {self.drop_columns}; free text is not supported; also exclude "
                f"these columns: {', '.join(texts)}"
            )
        return problems


def texts_of(columns: Sequence[DescribedColumn]) -> set[str]:
    """Return the columns of free text; where values were too many to count, the job will tell."""
    return {
        column["name"]
        for column in columns
        if column["type"] == "text" and column.get("distinct") is not None
    }


def no_such_column(names: Sequence[str], columns: Sequence[str]) -> str:
    """Say which columns are missing, and which there are."""
    shown = ", ".join(columns[:50]) + (f" and {len(columns) - 50} more" if columns[50:] else "")
    return f"got {', '.join(map(repr, names))}; not in the dataset; its columns: {shown}"
