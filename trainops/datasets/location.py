"""Where a registered directory is: the input that an attempt gets for it. Imports no pyarrow."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex
from typing import Self

from trainops.datasets.errors import DataError

SUFFIX = ".directory.json"
FILES = "files"  # the folder of a cache that holds copies


@dataclass(frozen=True, slots=True)
class Location:
    """`manifest` is the Parquet file of names, sizes and digests.

    Files whose last change (ctime) is before `changed_ns` have not changed since they were
    registered.

    Of a prefix in a bucket, `source` is its URL with options, and `root` is where copies of its
    files are kept: below `cache`, which holds at most `cache_bytes` of such copies.
    """

    dataset_id: str
    root: str
    manifest: str
    changed_ns: int
    source: str = ""
    cache: str = ""
    cache_bytes: int = 0

    @classmethod
    def of_prefix(
        cls, dataset_id: str, manifest: Path, changed_ns: int, source: str, cache: Path, limit: int
    ) -> Self:
        """Return the location of a prefix; `limit` is the size of the cache in bytes."""
        root = str(cache / dataset_id / FILES)
        return cls(dataset_id, root, str(manifest), changed_ns, source, str(cache), limit)

    def write(self, folder: Path) -> Path:
        """Write it as a file in `folder`, whole or not at all; return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.dataset_id}{SUFFIX}"
        draft = folder / f".{path.name}.{token_hex(4)}.part"
        draft.write_text(json.dumps(asdict(self)))
        return draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises DataError for a file that is no location."""
        if not path.name.endswith(SUFFIX):
            raise DataError(f"got the table {path.name}; allowed: a registered directory")
        return cls(**json.loads(path.read_text()))
