"""Operations as rows of a table: their state, config values and best values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from trainops.client.api import Api
from trainops.client.responses import Operation, TableRow
from trainops.plain import Json

if TYPE_CHECKING:
    from trainops.client.comparison_responses import ComparedValues

AT_ONCE = 12  # operations that one comparison may have
Column: TypeAlias = Literal[
    "name", "kind", "recipe", "status", "reason", "owner", "created_at", "finished_at"
]
COLUMNS: tuple[Column, ...] = get_args(Column)


def rows(api: Api, operations: Sequence[Operation]) -> list[TableRow]:
    """Return a row for each operation, in this order; see `Client.table`."""
    found = {each["operation_id"]: _row(api, each) for each in operations}
    for ids in _batches(list(found)):
        lines: list[ComparedValues] = api.get("operations/compare", ids=",".join(ids))["values"]
        for line in lines:
            if line["what"] == "final":
                continue  # the latest value, which is in "metrics" of the operation
            for operation_id, cell in line["values"].items():
                found[operation_id][f"{line['what']}.{line['name']}"] = cell["value"]
    return list(found.values())


def _row(api: Api, operation: Operation) -> TableRow:
    config = api.get(f"operations/{operation['operation_id']}")["config"]
    row: TableRow = {"operation_id": operation["operation_id"]}
    row |= {name: operation.get(name) for name in COLUMNS}
    row |= {f"config.{path}": value for path, value in _flat(config)}
    metrics = operation.get("metrics") or {}
    return row | {f"latest.{name}": value for name, value in metrics.items()}


def _flat(values: Mapping[str, Json], before: str = "") -> Iterator[tuple[str, Json]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield 2 to 12 ids at a time; a single one at the end comes with one before it."""
    for first in range(0, len(ids), AT_ONCE):
        batch = ids[first : first + AT_ONCE]
        if len(batch) > 1:
            yield batch
        elif first:
            yield ids[first - 1 : first + 1]
