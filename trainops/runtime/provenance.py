"""What an attempt runs and reads: the recipe's files, its git commit, packages, and its inputs.

Written into the manifest of every checkpoint and compared at a resume: other code or data make
other steps, however exactly the state was restored.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import NotRequired, TypedDict

from blake3 import blake3

from trainops import paths
from trainops.runtime.receipt import ReceiptItem
from trainops.version import VERSION

CODE = "code"  # its key in a manifest's environment
INPUTS = "inputs"  # its key in a manifest's identity
DATASET = "ds_"  # how the ids of datasets begin; other inputs are models of operations
SHOWN_DIGITS = 12
OWN = "trainops"
NOT_IMPORTED = frozenset({OWN, "torch"})  # recorded whatever is imported; see also the receipt
SHARED = frozenset({"site-packages", "dist-packages"})
MAX_NAMED = 10
GIT_SECONDS = 5.0
WITH_CODE = (".", ":(exclude,glob)**/__pycache__/**")  # what an import writes is no change


class Code(TypedDict):
    """The code of a recipe. files: digests by path.

    packages: versions of trainops and of what the files import.
    """

    files: dict[str, str]
    packages: dict[str, str]
    commit: NotRequired[str]  # only within a git repository


_running: Code | None = None


def include(names: Iterable[str]) -> None:
    """Record the code of the job that was just made, given as "package.module:name".

    It takes the place of what an earlier call recorded.
    """
    global _running  # one job runs in a process
    _running = code_of(tuple(names))


def to_environment() -> Mapping[str, Code]:
    """Return what a manifest's environment has of the running job's code."""
    return {} if _running is None else {CODE: _running}


@cache
def code_of(names: tuple[str, ...]) -> Code | None:
    """Return the code of these objects as it is on disk; None if there are no files.

    Read once in a process: what is loaded stays as it is, whatever becomes of the files.
    """
    files: dict[str, ModuleType] = {}
    for name in sorted({name.partition(":")[0] for name in names}):
        files |= _files_of(name)
    if not files:
        return None
    code: Code = {
        "files": {path: _digest(_path(module)) for path, module in sorted(files.items())},
        "packages": dict(sorted([*_packages(files.values()), (OWN, VERSION)])),
    }
    if commit := _commit(_directories(names)):
        code["commit"] = commit
    return code


def compare(before: Mapping[str, object]) -> tuple[ReceiptItem, ...]:
    """Return the items of a receipt, given the environment of the checkpoint's manifest.

    None for checkpoints without a record of their code: older and imported ones.
    """
    saved = before.get(CODE)
    if not isinstance(saved, Mapping) or _running is None:
        return ()
    return (_compare_files(saved, _running), *_compare_packages(saved, _running))


def compare_inputs(
    before: Mapping[str, object], now: Mapping[str, object]
) -> tuple[ReceiptItem, ...]:
    """Return an item for each dataset and model, given the identities of two manifests.

    They hold the digests of the content that is verified before it is read. None for checkpoints
    without a record of them: older ones, and those of runs without a server.
    """
    if INPUTS not in before or INPUTS not in now:
        return ()
    was, found = _texts(before, INPUTS), _texts(now, INPUTS)
    names = sorted(was.keys() | found.keys())
    return tuple(_compare_input(name, was.get(name, ""), found.get(name, "")) for name in names)


def _compare_input(name: str, was: str, found: str) -> ReceiptItem:
    part = f"{'dataset' if name.startswith(DATASET) else 'model of'} {name}"
    if was == found:
        return ReceiptItem(part, note=f"same content, digest {found[:SHOWN_DIGITS]}")
    before, after = (each[:SHOWN_DIGITS] or "none" for each in (was, found))
    note = f"digest was {before}, is {after}"
    return ReceiptItem(part, restored=False, exact=False, note=note)


def changed_on_disk(names: Iterable[str], before: Mapping[str, object]) -> list[str]:
    """Return which recorded files of a checkpoint differ from those on disk; imports nothing.

    Empty where the checkpoint has no record of its code, or the files are not found.
    """
    saved = before.get(CODE)
    tops = {top for name in names for top in _tops_on_disk(name)}
    if not isinstance(saved, Mapping) or not tops:
        return []
    return [
        path
        for path, digest in sorted(_texts(saved, "files").items())
        if not any(_digest_of(top, path) == digest for top in tops)
    ]


def _tops_on_disk(name: str) -> list[Path]:
    """Return the directories that the recorded paths of a recipe's files are below.

    There are several for a package without __init__.py that is spread over as many directories.
    """
    module = name.partition(":")[0]
    try:
        found = importlib.util.find_spec(_root(module))
    except (ImportError, ValueError):
        return []
    if found is not None and found.submodule_search_locations is not None:
        return [Path(each).parent for each in found.submodule_search_locations]
    return [] if found is None or found.origin is None else [Path(found.origin).parent]


def _digest_of(top: Path, path: str) -> str:
    """Return the digest of a recorded file; "" where it is not one below this directory."""
    relative = PurePosixPath(path)  # its links are followed, as by the import system
    if relative.is_absolute() or ".." in relative.parts:
        return ""
    file = top / relative
    return _digest(file) if file.is_file() else ""


def _root(module: str) -> str:
    """Return the package whose files are those of a recipe's module."""
    return module.rpartition(".")[0] if module.startswith(f"{OWN}.") else module.partition(".")[0]


def _loaded_root(name: str) -> ModuleType | None:
    """Return the loaded package or module whose files are those of a recipe's module."""
    root = _root(name)
    is_engine = name.startswith(f"{OWN}.") and not root.endswith(".recipes")
    return None if is_engine else sys.modules.get(root)


def _files_of(name: str) -> dict[str, ModuleType]:
    """Return the loaded modules that belong to a recipe's module, by path below their root.

    These are the modules of its top-level package. A module without a package has those of its
    directory, and a recipe of trainops those of the `recipes` package that holds it.
    """
    root, found = _root(name), _loaded_root(name)
    if found is None:
        return {}
    if hasattr(found, "__path__"):
        tops = [Path(each).parent for each in found.__path__]
        members = [
            module
            for each, module in list(sys.modules.items())
            if each == root or each.startswith(f"{root}.")
        ]
    else:
        tops = [_path(found).parent]
        is_shared = tops[0].name in SHARED  # with packages that are not the recipe's
        members = [found] if is_shared else list(sys.modules.values())
    return {
        _path(each).relative_to(top).as_posix(): each
        for top in reversed(tops)  # the first one decides, as for the import system
        for each in members
        if _path(each).is_relative_to(top) and _path(each).is_file()
    }


def _directories(names: Iterable[str]) -> list[Path]:
    """Return the directories of the packages and modules that `_files_of` reads."""
    found: dict[Path, None] = {}
    for name in sorted({name.partition(":")[0] for name in names}):
        if (root := _loaded_root(name)) is not None:
            places = map(Path, getattr(root, "__path__", [_path(root).parent]))
            found |= dict.fromkeys(places)
    return list(found)


def _path(module: ModuleType) -> Path:
    return Path(getattr(module, "__file__", None) or "/")


def _digest(file: Path) -> str:
    return blake3(file.read_bytes()).hexdigest(length=16)


def _packages(modules: Iterable[ModuleType]) -> Iterator[tuple[str, str]]:
    """Yield the name and version of each package from which a global of these modules comes."""
    names = set()
    for module in modules:
        for value in vars(module).values():
            is_module = isinstance(value, ModuleType)
            origin = value.__name__ if is_module else getattr(value, "__module__", None)
            names.add(str(origin).partition(".")[0])
    for name in names - NOT_IMPORTED:
        package = sys.modules.get(name)
        # Not by attribute access, which a package may answer with a warning.
        version = None if package is None else vars(package).get("__version__")
        if isinstance(version, str):
            yield name, version


def _commit(directories: Iterable[Path]) -> str:
    """Return the git commits of these directories, each with "(modified)" where files differ.

    Empty outside of repositories. Installed packages and those of trainops have versions instead.
    """
    modified: dict[str, bool] = {}
    for each in directories:
        if not (SHARED & set(each.parts) or each.is_relative_to(paths.PACKAGE)):
            head, is_modified = _status(each)
            modified[head] = modified.get(head, False) or is_modified
    modified.pop("", None)
    return ", ".join(f"{head} (modified)" if each else head for head, each in modified.items())


def _status(directory: Path) -> tuple[str, bool]:
    """Return a directory's commit, and whether its files differ from it; ("", False) without."""
    options = ["status", "--porcelain=v2", "--branch", "--untracked-files=all", "--", *WITH_CODE]
    command = ["git", "-C", str(directory), *options]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "", False
    lines = done.stdout.splitlines()
    head = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    return head[:12], any(not line.startswith("#") for line in lines)


def _compare_files(saved: Mapping[str, object], now: Code) -> ReceiptItem:
    was, found = _texts(saved, "files"), now["files"]
    common = was.keys() & found.keys()  # which others are imported, a changed file decides
    changed = [name for name in common if was[name] != found[name]]
    problems = [f"changed: {named(changed)}"] if changed else []
    if not common:
        problems = [f"other files: {named(found)}"]
    before, after = str(saved.get("commit", "")), now.get("commit", "")
    if not problems:
        return ReceiptItem("recipe code", note=f"commit {after}" if after else "same files")
    commits = [f"commit was {before or 'none'}, is {after or 'none'}"] if before != after else []
    note = "; ".join([*problems, *commits])
    return ReceiptItem("recipe code", restored=False, exact=False, note=note)


def _compare_packages(saved: Mapping[str, object], now: Code) -> Iterator[ReceiptItem]:
    was, found = _texts(saved, "packages"), now["packages"]
    for name in sorted(was.keys() & found.keys()):
        if was[name] != found[name]:
            note = f"was {was[name]}, is {found[name]}"
            yield ReceiptItem(f"package {name}", restored=False, exact=False, note=note)


def _texts(saved: Mapping[str, object], key: str) -> dict[str, str]:
    found = saved.get(key)
    texts = found if isinstance(found, Mapping) else {}
    return {str(name): str(text) for name, text in texts.items()}


def named(names: Iterable[str]) -> str:
    """Return the first of these files, and the number of the others."""
    ordered = sorted(names)
    more = len(ordered) - MAX_NAMED
    return ", ".join(ordered[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
