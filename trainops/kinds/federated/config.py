"""The config of a federated operation."""

from collections.abc import Mapping
from typing import Any, Self

from trainops.kinds.federated.limits import problems_of
from trainops.kinds.federated.options import FederatedOptions
from trainops.runtime.columns import DescribedColumns
from trainops.runtime.errors import ConfigError


class FederatedConfig(FederatedOptions):
    """A recipe, the clients that its examples lie with, and how they learn together."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        config = super().parse(raw)
        if problems := problems_of(config):
            raise ConfigError(problems)
        return config

    def check_columns(self, columns: DescribedColumns) -> Mapping[str, str]:
        problems = dict(super().check_columns(columns))
        known = {column["name"] for each in columns.values() for column in each}
        if self.partition.by == "column" and known and self.partition.column not in known:
            problems["partition.column"] = (
                f"got {self.partition.column!r}; not in the dataset; its columns: "
                f"{', '.join(sorted(known)[:50])}"
            )
        return problems
