"""All files of an operation as one zip, written while it is sent: nothing of it is stored.

Files of checkpoints are stored in it as they are, each after its bytes were compared with its
digest; text is compressed. What turns out to be damaged cuts the archive off, so that no program
takes it for a complete one.
"""

import io
import json
import zipfile
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import StreamingHttpResponse
from django.utils import timezone

from apps.checkpoints import signatures
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.sharing import artifacts as files_of
from apps.checkpoints.storage import SIGNATURE
from apps.operations.files import artifacts, exchange, exports
from apps.operations.models import Operation
from apps.operations.points import metric_queries, points_csv
from trainops.concurrency_limit import ConcurrencyLimit
from trainops.runtime.checkpoint.manifest import MANIFEST

BLOCK_BYTES = 256 * 1024  # collected before they are sent
NUM_AT_ONCE = 16  # archives that one web process sends; one for each person
FIELDS = (
    "id", "kind", "recipe", "name", "notes", "project", "state", "reason", "step", "total_steps",
    "created_at", "started_at", "finished_at", "config_hash", "config_given", "config", "metrics",
    "result", "error",
)  # fmt: skip
_limit = ConcurrencyLimit(NUM_AT_ONCE)


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of the archive; its content is read when it is its turn."""

    name: str
    chunks: Iterable[bytes]
    is_text: bool = False


class OperationArchive:
    """The bytes of a zip, to be closed; what it holds was chosen when it was made.

    Raises DomainError at once where the first file cannot be sent, or the person has one already.
    """

    def __init__(self, operation: Operation, *, person: str) -> None:
        self.name = f"{operation.pk}.zip"
        self._blocks = _written(operation.pk, _entries(operation), person)
        self._first: bytes | None = next(self._blocks, b"")

    def __iter__(self) -> "OperationArchive":
        return self

    def __next__(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return next(self._blocks)

    def close(self) -> None:
        self._blocks.close()

    def response(self) -> StreamingHttpResponse:
        response = StreamingHttpResponse(self, content_type="application/zip")
        response["Content-Disposition"] = f'attachment; filename="{self.name}"'
        response["X-Content-Type-Options"] = "nosniff"
        return response


def checkpoints_of(operation_id: str) -> list[Checkpoint]:
    """Return the checkpoints whose files are in it: the final one, else the best and the newest."""
    healthy = list(Checkpoint.objects.filter(operation_id=operation_id).healthy().newest_first())
    final = [each for each in healthy if each.type == Checkpoint.Type.FINAL]
    return final or [each for each in healthy if each.is_best or each.best_of or each == healthy[0]]


def _entries(operation: Operation) -> Iterator[ArchivedFile]:
    """Yield the files: those first that may turn out to be damaged."""
    for checkpoint in checkpoints_of(operation.pk):
        directory = checkpoint.artifacts_path.rpartition("/")[2]
        exchange.have_here(checkpoint)
        yield ArchivedFile(f"{directory}/{MANIFEST}", [artifacts.manifest(checkpoint)])
        if signature := signatures.content_of(checkpoint.signature):
            yield ArchivedFile(f"{directory}/{SIGNATURE}", [signature])
        for artifact in files_of(checkpoint.manifest):
            chunks = artifacts.download(checkpoint, artifact.name).chunks
            yield ArchivedFile(f"{directory}/{artifact.name}", chunks)
    yield from _exports(operation)
    row = {name: getattr(operation, name) for name in FIELDS}
    text = json.dumps(row, cls=DjangoJSONEncoder, indent=2, ensure_ascii=False)
    yield ArchivedFile("operation.json", [text.encode()], is_text=True)
    log = metric_queries.log_chunks(operation.pk, has_headings=True)
    yield ArchivedFile("log.txt", (each.encode() for each in log), is_text=True)
    points = points_csv.pages(operation.pk)
    yield ArchivedFile("points.csv", (each.encode() for each in points), is_text=True)


def _exports(operation: Operation) -> Iterator[ArchivedFile]:
    """Yield the files of other tools that were made of its checkpoints and are kept."""
    names: set[str] = set()
    for number, exported in enumerate(exports.kept(operation.pk), 1):
        with exported.file as file:
            name = f"{number}-{exported.name}" if exported.name in names else exported.name
            names.add(name)
            yield ArchivedFile(f"exports/{name}", iter(partial(file.read, BLOCK_BYTES), b""))


class _Outlet(io.RawIOBase):
    """Collects what is written; without a position, so that the zip is written as a stream."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.num_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        content = bytes(piece)
        self._pieces.append(content)
        self.num_bytes += len(content)
        return len(content)

    def taken(self) -> bytes:
        """Return what was collected since the last call."""
        content = b"".join(self._pieces)
        self._pieces.clear()
        self.num_bytes = 0
        return content


def _written(
    directory: str, entries: Iterator[ArchivedFile], person: str
) -> Generator[bytes, None, None]:
    """Yield the zip of these files, all of them in a directory of it. Raises DomainError."""
    outlet, made_at = _Outlet(), timezone.now().timetuple()[:6]
    with _limit.taken(person), zipfile.ZipFile(outlet, "w") as packed:
        for entry in entries:
            info = zipfile.ZipInfo(f"{directory}/{entry.name}", made_at)
            info.compress_type = zipfile.ZIP_DEFLATED if entry.is_text else zipfile.ZIP_STORED
            info.external_attr = 0o644 << 16
            with packed.open(info, "w", force_zip64=True) as file:
                for chunk in entry.chunks:
                    file.write(chunk)
                    if outlet.num_bytes >= BLOCK_BYTES:
                        yield outlet.taken()
    yield outlet.taken()
