"""What kind of data a directory holds, by the names of its files and by their headers.

Detection is conservative: every file of data must fit, otherwise the layout is `files`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainops.datasets.description import ClassCount, ColumnType, DirectoryDescription
from trainops.datasets.errors import DataError
from trainops.datasets.files import FoundFile, is_data

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
SPLITS = frozenset({"train", "val", "valid", "validation", "test"})
HUGGING_FACE = frozenset({"dataset_info.json", "state.json"})
SPLIT_LIST = "dataset_dict.json"  # of a Hugging Face DatasetDict, whose splits are folders
MAX_CLASSES, MAX_HEADERS, MAX_COLUMNS = 1000, 1000, 200


def describe(root: Path | None, found: Sequence[FoundFile]) -> DirectoryDescription:
    """Return the layout; without `root`, by the names alone.

    Raises DataError for a file whose header contradicts its name.
    """
    names = [PurePosixPath(each.name) for each in found]
    data = [each for each in names if is_data(each)]
    layout = DirectoryDescription(
        layout="files", title="Files", num_files=len(found),
        num_bytes=sum(each.size_bytes for each in found), num_examples=None, classes=[], columns=[],
    )  # fmt: skip
    for name, title, fits, tell in LAYOUTS:
        if data and fits(data):
            layout["layout"], layout["title"] = name, title
            if root is not None or tell in OF_NAMES:
                tell(root or Path(), data, layout)
            break
    return layout


def _have_suffix(*suffixes: str) -> Callable[[Sequence[PurePosixPath]], bool]:
    return lambda names: all(each.suffix.lower() in suffixes for each in names)


def _are_pairs(names: Sequence[PurePosixPath]) -> bool:
    """Whether they are images/STEM and masks/STEM, one of each for every stem."""
    if not _are_images(names) or {each.parts[0] for each in names} != {"images", "masks"}:
        return False
    stems = [
        sorted(each.with_suffix("").parts[1:] for each in names if each.parts[0] == folder)
        for folder in ("images", "masks")
    ]
    return stems[0] == stems[1] and len(set(stems[0])) == len(stems[0])


def _are_class_folders(names: Sequence[PurePosixPath]) -> bool:
    """Whether they are CLASS/FILE, or SPLIT/CLASS/FILE with the usual names of splits."""
    if not _are_images(names):
        return False
    depths = {len(each.parts) for each in names}
    return depths == {2} or (depths == {3} and {each.parts[0] for each in names} <= SPLITS)


def _are_images(names: Sequence[PurePosixPath]) -> bool:
    return all(each.suffix.lower() in IMAGES for each in names)


def _are_saved_by_datasets(names: Sequence[PurePosixPath]) -> bool:
    """Whether they are of a Dataset, or of a DatasetDict: FILE, or SPLIT/FILE."""
    others: dict[PurePosixPath, set[str]] = {each.parent: set() for each in names}
    for each in names:
        if each.suffix != ".arrow":
            others[each.parent].add(each.name)
    root = PurePosixPath()
    if others.keys() != {root} and others.pop(root, set()) != {SPLIT_LIST}:
        return False
    is_flat = all(each.parent == root for each in others)
    return is_flat and all(found == HUGGING_FACE for found in others.values())


def _tell_classes(root: Path, names: Sequence[PurePosixPath], layout: DirectoryDescription) -> None:
    counts = Counter(each.parent.name for each in names)
    layout["num_examples"] = len(names)
    layout["classes"] = [
        ClassCount(name=name, count=count) for name, count in sorted(counts.items())[:MAX_CLASSES]
    ]


def _tell_pairs(root: Path, names: Sequence[PurePosixPath], layout: DirectoryDescription) -> None:
    layout["num_examples"] = len(names) // 2


def _tell_parquet(root: Path, names: Sequence[PurePosixPath], layout: DirectoryDescription) -> None:
    num_rows, schema = 0, None
    for path in _readable(root, names):
        try:
            footer = pq.read_metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path} is no complete Parquet file: {error}") from error
        num_rows += footer.num_rows
        schema = schema or footer.schema.to_arrow_schema()
    layout["num_examples"] = num_rows if len(names) <= MAX_HEADERS else None
    layout["columns"] = [
        ColumnType(name=each.name, type=str(each.type)) for each in list(schema or ())[:MAX_COLUMNS]
    ]


def _tell_arrays(root: Path, names: Sequence[PurePosixPath], layout: DirectoryDescription) -> None:
    for name, path in zip(names[:MAX_COLUMNS], _readable(root, names), strict=False):
        if name.suffix.lower() != ".npy":
            continue
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is no array that can be mapped: {error}") from error
        shape = " x ".join(map(str, array.shape))
        layout["columns"].append(ColumnType(name=str(name), type=f"{array.dtype} {shape}".strip()))


def _tell_nothing(root: Path, names: Sequence[PurePosixPath], layout: DirectoryDescription) -> None:
    """For layouts whose number of examples only a reading of the whole could tell."""


def _readable(root: Path, names: Sequence[PurePosixPath]) -> Iterator[Path]:
    return (root / each for each in names[:MAX_HEADERS])


OF_NAMES = (_tell_classes, _tell_pairs)  # they read no header
LAYOUTS = (
    ("image_pairs", "Images and masks", _are_pairs, _tell_pairs),
    ("image_folders", "Images in class folders", _are_class_folders, _tell_classes),
    ("parquet", "Parquet", _have_suffix(".parquet"), _tell_parquet),
    ("arrays", "NumPy arrays", _have_suffix(".npy", ".npz"), _tell_arrays),
    ("json_lines", "JSON lines", _have_suffix(".jsonl", ".ndjson"), _tell_nothing),
    ("text", "Text", _have_suffix(".txt"), _tell_nothing),
    ("tar_shards", "Tar shards", _have_suffix(".tar"), _tell_nothing),
    ("arrow", "Hugging Face dataset (Arrow)", _are_saved_by_datasets, _tell_nothing),
)  # the first that fits
