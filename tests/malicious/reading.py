"""What a confined process does with each malicious file: read it in every way there is."""

import time
from pathlib import Path

from apps.datasets.tables import child
from tests.memory import peak_bytes
from trainops.files import packed
from trainops.files.errors import FormatError
from trainops.files.reading import read
from trainops.files.show import show
from trainops.files.verify import verify
from trainops.plain_yaml import UNREADABLE, parsed

TABLES = (".parquet", ".npz", ".csv")


def answer(request):
    """Return what was found of each file, and the peak of memory in bytes."""
    before = peak_bytes()
    found = [_looked_at(Path(path)) for path in request["files"]]
    return {"found": found, "bytes": peak_bytes() - before}


def _looked_at(path):
    began = time.monotonic()
    try:
        said = READERS.get(path.suffix, _checkpoint)(path)
    except Exception as error:  # noqa: BLE001 - it is what the test is about
        said = {"bug": repr(error)[:500]}
    return {"file": path.name, "seconds": time.monotonic() - began, **said}


def _checkpoint(path):
    sentences = []
    for look in (show, read):
        try:
            look(path)
        except FormatError as refused:
            sentences.append(str(refused))
    report = verify(path)
    sentences += [check.detail for check in report.checks if not check.passed]
    assert not packed.is_one(path)
    return {"refused": sentences}


def _table(path):
    target = path.with_suffix(".normalised")
    request = {"source": str(path), "target": str(target), "options": {}, "limits": {}}
    answered = child.answer(request)
    return {"refused": [answered["refused"]["message"]] if "refused" in answered else []}


def _config(path):
    try:
        parsed(path.read_text(encoding="utf-8"))
    except UNREADABLE as refused:
        return {"refused": [str(refused)]}
    return {"refused": []}


READERS = {".yaml": _config, **dict.fromkeys(TABLES, _table)}
