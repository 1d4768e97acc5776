"""Tables of your own, spread over clients: predict one column from the others."""

from collections.abc import Mapping

from pydantic import Field

from trainops.learning.tasks.tabular import TabularParameters
from trainops.recipes import Recipe
from trainops.runtime.columns import DescribedColumns
from trainops.runtime.config import DatasetId


class FederatedTabularParameters(TabularParameters):
    """As for training; further tables have the columns of the first."""

    more_datasets: list[DatasetId] = Field(
        default_factory=list,
        max_length=10_000,
        description="Further tables; with partition.by: file, each table is one client.",
    )

    def check_columns(self, columns: DescribedColumns) -> Mapping[str, str]:
        problems = dict(super().check_columns(columns))
        first = {column["name"] for column in columns.get(self.dataset, ())}
        for each in self.more_datasets:
            names = {column["name"] for column in columns.get(each, ())}
            if first and names and first != names:
                lacks, more = _listed(first - names), _listed(names - first)
                problems["more_datasets"] = (
                    f"got {each}; must have the same columns; missing: {lacks}; extra: {more}"
                )
        return problems


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


RECIPE = Recipe(
    name="federated_tabular",
    kind="federated",
    label="Table, federated",
    description="Predicts a column of uploaded tables from the others; rows are distributed "
    "over clients",
    parameters="trainops.kinds.federated.recipes.tabular:FederatedTabularParameters",
    build="trainops.kinds.federated.recipes.tabular_model:build",
    example={
        "recipe": "federated_tabular",
        "parameters": {"dataset": "ds_0000000000000000", "target": "price"},
        "rounds": 20,
        "clients": 5,
        "learning_rate": 0.05,
    },
)
