"""Files as the other tools write them, made anew from what their own files look like inside.

`key_trees/*.json` describe files that the original tools wrote: every key in its order, every type
and shape, the small plain values. Only the numbers in the tensors are made up. Where the originals
themselves are at hand, TRAINOPS_FOREIGN_FILES names the directory they are in, and every test that
reads a file reads them, too.
"""

import io
import json
import os
import random
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

NAMES = ("training", "federated_mid_round", "federated_completed", "rl")
TREES = Path(__file__).with_name("key_trees")
REAL = sorted(
    path
    for path in Path(os.environ.get("TRAINOPS_FOREIGN_FILES") or "/nonexistent").rglob("*")
    if path.suffix in (".pt", ".ckpt")
)
ALL = (*NAMES, *REAL)
SOURCES_OF_AGENTS = ("rl", *(path for path in REAL if path.name.startswith("checkpoint_ep")))
IN_HEX = "80055d942e"  # what an empty list is as a pickle of protocol 5


def tree(name: str) -> Any:
    """Return what the original holds, with numbers of our own in the tensors."""
    return made(json.loads((TREES / f"{name}.json").read_text()))


def save(tree: Any, path: Path) -> Path:
    torch.save(tree, path)
    return path


def original(source: "str | Path", directory: Path) -> Path:
    """Return a file of this name, or a copy of a real one."""
    if isinstance(source, Path):
        path = directory / source.name
        path.write_bytes(source.read_bytes())
        return path
    return save(tree(source), directory / f"{source}.pt")


def made(node: Any) -> Any:
    """Return the value that a node of a description stands for."""
    if not isinstance(node, dict):
        return node
    kind, content = next(iter(node.items()))
    return MAKERS[kind](content, node)


MAKERS = {
    "dict": lambda entries, node: {name: made(each) for name, each in entries},
    "ordered": lambda entries, node: OrderedDict((name, made(each)) for name, each in entries),
    "list": lambda items, node: [made(each) for each in items],
    "tuple": lambda items, node: tuple(made(each) for each in items),
    "tensor": lambda dtype, node: tensor(dtype, node["shape"], node.get("value")),
    "array": lambda dtype, node: tensor("int64", node["shape"], None).numpy().astype(dtype),
    "number": lambda dtype, node: np.dtype(dtype).type(node["value"]),
    "words": lambda size, node: random.Random(7).getstate()[1],  # noqa: S311
    "permutation": lambda size, node: [(7 * i + 3) % size for i in range(size)],
    "pickle_in_hex": lambda size, node: IN_HEX,
}


def tensor(dtype: str, shape: list[int], value: float | None) -> torch.Tensor:
    if dtype == "uint8":
        return torch.Generator().manual_seed(3).get_state()
    if value is not None:
        return torch.tensor(value, dtype=getattr(torch, dtype))
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape)
    if dtype == "float32":
        return 0.001 * ((numbers * 37) % 101 + 1).to(torch.float32)
    return (numbers % 8 == 7) if dtype == "bool" else (numbers % 8).to(getattr(torch, dtype))


def key_tree(value: Any, place: str = "") -> list[str]:
    """Return a line for each key: its place, its type, its shape."""
    if isinstance(value, dict):
        below = [line for k, each in value.items() for line in key_tree(each, f"{place}/{k}")]
        return [f"{place} dict", *below]
    if isinstance(value, list | tuple):
        items = (
            value
            if any(isinstance(each, dict | torch.Tensor | np.ndarray) for each in value)
            else []
        )
        below = [line for i, each in enumerate(items) for line in key_tree(each, f"{place}/{i}")]
        return [f"{place} {type(value).__name__} {len(value)}", *below]
    if isinstance(value, torch.Tensor):
        return [f"{place} tensor {value.dtype} {tuple(value.shape)}"]
    if isinstance(value, np.ndarray):
        return [f"{place} array {value.dtype} {value.shape}"]
    plain = value.item() if isinstance(value, np.generic) else value
    return [f"{place} {type(plain).__name__}"]


def records(path: Path) -> dict[str, bytes]:
    """Return the records of an archive by their whole names; a checkpoint of ours has no CRC-32."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            info.CRC = info.CRC or None
        return {info.filename: archive.read(info) for info in archive.infolist()}


def write_records(
    path: Path, content: dict[str, bytes] | list[tuple[str, bytes]], **options: Any
) -> Path:
    """Write an archive with these records, stored unless `options` say otherwise."""
    pairs = list(content.items()) if isinstance(content, dict) else content
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, each in pairs:
            archive.writestr(zipfile.ZipInfo(name), each, compress_type=options.get("compression"))
    return path


def with_pickle(path: Path, pickled: bytes) -> Path:
    """Put another pickle into an archive."""
    content = records(path)
    name = next(each for each in content if each.endswith("/data.pkl"))
    return write_records(path, {**content, name: pickled})


def pickle_in(path: Path) -> bytes:
    return next(each for name, each in records(path).items() if name.endswith("/data.pkl"))


def as_numpy_1(path: Path) -> Path:
    """Rewrite a file as NumPy 1 would have written it: the same under another module's name."""
    return with_pickle(path, pickle_in(path).replace(b"numpy._core.", b"numpy.core."))


def saved(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()
