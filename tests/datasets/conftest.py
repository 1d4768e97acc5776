from io import BytesIO
from pathlib import Path

import pytest

from apps.datasets.tables.normalise import normalise
from apps.datasets.tables.options import TableLimits, TableOptions
from apps.datasets.tables.refusals import TableRefused
from tests import storages


@pytest.fixture(autouse=True)
def _own_storage(settings, tmp_path):
    """Files of one test are seen by no other."""
    settings.DATA_DIR = tmp_path / "var"
    storages.place(settings, settings.DATA_DIR)


class Table:
    """A normalised table: `rows`, `columns` by name, and the bytes."""

    def __init__(self, description, path: Path) -> None:
        import pyarrow.parquet as pq

        self.description = description
        self.path = path
        self.arrow = pq.read_table(path)
        self.rows = self.arrow.to_pydict()
        self.columns = {column["name"]: column for column in description["columns"]}
        self.types = {name: column["type"] for name, column in self.columns.items()}


@pytest.fixture
def read(tmp_path):
    """Normalise bytes or text; return the Table."""

    def read(content, limits=None, **options):
        source, target = tmp_path / "source", tmp_path / "table.parquet"
        source.write_bytes(content.encode() if isinstance(content, str) else content)
        found = normalise(source, target, TableOptions(**options), limits or TableLimits())
        return Table(found, target)

    return read


@pytest.fixture
def refused(read):
    """The TableRefused that a content must meet, with the code that it must have."""

    def refused(code, content, limits=None, **options):
        with pytest.raises(TableRefused) as error:
            read(content, limits, **options)
        assert error.value.code == code, error.value.message
        assert error.value.message and error.value.field
        return error.value

    return refused


def parquet(columns, **options) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = BytesIO()
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, sink, **options)
    return sink.getvalue()
