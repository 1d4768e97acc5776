"""Writing a file for another tool: whole and durable, or not there at all."""

import errno
import os
import secrets
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from trainops.files import digests
from trainops.files.finite import leaves
from trainops.files.known import format_of
from trainops.runtime.checkpoint.durable import DurableFile, sync_directory


def write(file: object, path: Path) -> None:
    """Write the file for its tool, its .sha256 beside it where that tool asks for one.

    Raises OSError; an earlier file of this name is then still there, whole.
    """
    form = format_of(file)
    tree = without_views(form.to_tree(file))
    with _draft_of(path) as draft, closing(DurableFile(draft, _num_bytes(tree))) as target:
        torch.save(tree, cast(BinaryIO, target))
        target.finish()
    if form.has_digest:
        digests.write(path)


def write_safetensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]
) -> None:
    """Write named tensors. Raises OSError, as above."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in without_views(dict(tensors)).items():
        is_shared = tensor.data_ptr() in seen  # the format knows no two names for one tensor
        seen.add(tensor.data_ptr())
        apart[name] = tensor.clone() if is_shared else tensor
    with _draft_of(path) as draft:
        try:
            save_file(apart, draft, dict(metadata))
        except SafetensorError as error:  # of the disk, in the library's own class
            raise OSError(errno.EIO, f"{path} cannot be written: {error}") from error
        _sync(draft)


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """Give a name to write under; what is written there takes the place of `path` at the end."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    try:
        yield draft
        # A file without a digest is read with a notice, one with another's digest is refused.
        digests.beside(path).unlink(missing_ok=True)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def without_views(tree: object) -> Any:
    """Return the tree with whole tensors on the CPU: a view drags its whole storage along."""
    if isinstance(tree, Tensor):
        return _own(tree.detach().cpu())
    if isinstance(tree, np.ndarray):
        return np.ascontiguousarray(tree)
    if isinstance(tree, Mapping):
        made = OrderedDict if isinstance(tree, OrderedDict) else dict
        return made((name, without_views(each)) for name, each in tree.items())
    if isinstance(tree, list | tuple):
        return type(tree)([without_views(each) for each in tree])
    return tree


def _own(tensor: Tensor) -> Tensor:
    is_whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    if is_whole and tensor.is_contiguous():
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _num_bytes(tree: object) -> int:
    """Return about how many bytes the tree takes when saved."""
    found = (each.nbytes for _, each in leaves(tree) if isinstance(each, Tensor | np.ndarray))
    return sum(found) + 1
