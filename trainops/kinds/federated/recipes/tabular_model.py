"""What the clients of the tabular recipe train.

What preparing a column needs (its mean, its categories) is measured on all clients' training rows
together, once: it is taken as known, and costs no privacy. Where that is not so, prepare the
columns before they are uploaded.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from trainops.kinds.federated.ingredients import FILE, Federation, Group
from trainops.kinds.federated.recipes.tabular import FederatedTabularParameters
from trainops.learning.ingredients import Context
from trainops.learning.tasks.tabular_model import build_from
from trainops.learning.tasks.tabular_table import (
    Table,
    choose_task,
    find_classes,
    has_value,
    read_table,
)
from trainops.runtime.errors import InputError

MAX_CLIENTS = 1000  # of a column: values that each are a client


def build(parameters: FederatedTabularParameters, context: Context) -> Federation:
    """Raises InputError, which names the column."""
    paths = [context.table(each) for each in (parameters.dataset, *parameters.more_datasets)]
    tables = [read_table(path, parameters) for path in paths]
    table = _joined(tables)
    ingredients, train = build_from(table, parameters, context)
    rows = np.concatenate([np.full(len(each), number) for number, each in enumerate(tables)])
    groups = {
        FILE: Group(
            owners=torch.from_numpy(rows)[train],
            names=(parameters.dataset, *parameters.more_datasets),
        ),
        **_groups(paths, parameters, train),
    }
    is_classes = choose_task(table, parameters) == "classification"
    names = tuple(find_classes(table, parameters)) if is_classes else ()
    classes = Group(owners=ingredients.train.targets, names=names) if is_classes else None
    return Federation(ingredients=ingredients, classes=classes, groups=groups)


def _joined(tables: list[Table]) -> Table:
    """Return one table of all rows, in the order of the files."""
    if len(tables) == 1:
        return tables[0]
    first = tables[0]
    for place, other in enumerate(tables[1:], start=1):
        for name in first.numbers.keys() ^ other.numbers.keys():
            problem = f"{name} is numbers in one table and words in another (further table {place})"
            raise InputError({"parameters.more_datasets": f"{problem}; allowed: the same in all"})
    return Table(
        {name: np.concatenate([each.numbers[name] for each in tables]) for name in first.numbers},
        {
            name: [value for each in tables for value in each.categories[name]]
            for name in first.categories
        },
        _joined_target([each.target for each in tables]),
        sum(each.rows_without_target for each in tables),
    )


def _joined_target(targets: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return one column; whole numbers in one table and decimals in another are decimals."""
    try:
        tables = [pa.table({"target": each}) for each in targets]
        return pa.concat_tables(tables, promote_options="permissive")["target"]
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        kinds = ", ".join(sorted({str(each.type) for each in targets}))
        problem = f"the target is of several kinds ({kinds}); allowed: the same in all tables"
        raise InputError({"parameters.more_datasets": problem}) from error


def _groups(
    paths: list[Path], parameters: FederatedTabularParameters, train: torch.Tensor
) -> dict[str, Group]:
    """Return which value each training row has, of every column with few enough of them."""
    read = [pq.read_table(path) for path in paths]
    kept = [each.filter(has_value(each[parameters.target])) for each in read]
    groups = {}
    for name in kept[0].column_names:
        chunks = [chunk for each in kept for chunk in each[name].cast(pa.string()).chunks]
        words = pa.chunked_array(chunks, pa.string())  # types may differ: 1 and 1.0 are one value
        encoded = pc.dictionary_encode(words).combine_chunks()
        if len(encoded.dictionary) <= MAX_CLIENTS:
            missing = len(encoded.dictionary)
            codes = pc.fill_null(encoded.indices, missing).to_numpy(zero_copy_only=False)
            owners = torch.from_numpy(codes.astype(np.int64))[train]
            groups[name] = Group(owners=owners, names=(*encoded.dictionary.to_pylist(), "missing"))
    return groups
