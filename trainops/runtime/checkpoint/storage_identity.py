"""The identity file in the root of a storage: proof that it is mounted, and its owner's id.

An unmounted directory looks like an empty one; without the file, every checkpoint would appear to
be missing.
"""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from trainops.runtime.checkpoint.durable import sync_directory, write_whole
from trainops.runtime.errors import StorageAway

FILE = "trainops-storage.json"
FORMAT = "trainops-storage"
MAX_BYTES = 4096


def read(root: Path) -> str | None:
    """Return the id in the identity file of a directory; None where there is no such file.

    Raises StorageAway where there is one that cannot be read.
    """
    try:
        with (root / FILE).open("rb") as file:
            content = file.read(MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return parse(content, str(root))


def write(root: Path, storage_id: str) -> None:
    """Write the identity file, whole, in place of one that is there. Raises OSError."""
    draft = root / f".{FILE}-{token_hex(4)}"  # two processes may write it at once
    write_whole(draft, content(storage_id))
    draft.rename(root / FILE)
    sync_directory(root)


def require(root: Path, storage_id: str) -> None:
    """Raise StorageAway unless the directory's identity file holds this id."""
    found = read(root)
    if found is None:
        raise StorageAway(
            f"{root} holds no identity file {FILE}: it is not mounted, or was emptied"
        )
    if found != storage_id:
        raise StorageAway(f"{root} has the storage id {found}; expected: {storage_id}")


def content(storage_id: str) -> bytes:
    created_at = datetime.fromtimestamp(time.time(), tz=UTC).isoformat(timespec="seconds")
    content = {"format": FORMAT, "version": 1, "id": storage_id, "created_at": created_at}
    return json.dumps(content).encode()


def parse(content: bytes, location: str) -> str:
    """Return the id in the content of an identity file. Raises StorageAway."""
    try:
        read = json.loads(content)
        if read["format"] == FORMAT and isinstance(read["id"], str):
            return str(read["id"])
    except (ValueError, TypeError, KeyError):
        pass
    raise StorageAway(f"{location}/{FILE} cannot be read: it is not an identity file")
