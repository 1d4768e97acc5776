"""Compiling with numba, and where the machine code is kept between processes.

numba keeps machine code by the source file of the function that was called, and would go on using
it after a change of another file that it calls into. So the directory's name holds a digest of
the files that are called into, and a changed one starts a new directory.
"""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import config as numba_config

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
HERE = Path(__file__).parent
PACKAGE = HERE.parent
CALLED_INTO = ("kinds/*/core", "market/indicators")


def _sources_digest() -> str:
    digest = sha256()
    for folder in CALLED_INTO:
        for path in sorted(PACKAGE.glob(f"{folder}/*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _home() -> Path | None:
    try:
        return Path.home() / ".cache" / "trainops"
    except RuntimeError:  # neither HOME nor an entry for this user, as in some containers
        return None


def _cache_directory() -> Path | None:
    """Return a directory that only we write to; never a shared one: what is in it gets executed."""
    roots = (
        os.environ.get("NUMBA_CACHE_DIR"),
        HERE / "__pycache__",
        os.environ.get("TRAINOPS_DATA_DIR"),  # where the sources may not be written, as in images
        _home(),
    )
    for root in roots:
        if not root:
            continue
        directory = Path(root) / f"compiled-{_sources_digest()}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK):
            return directory
    return None


CACHE = _cache_directory()
if CACHE is not None:
    numba_config.CACHE_DIR = str(CACHE)  # type: ignore[attr-defined] # set where it is read


def settled(function: Callable[Arguments, Result], *examples: object) -> Callable[..., Result]:
    """Return the machine code of a compiled function for arguments like these.

    Most of what a call costs is numba's search for the types of its arguments: ten times the call
    where they are tables of records. Callers of the code itself must keep to the types.
    """
    dispatcher: Any = function
    signature = tuple(map(numba.typeof, examples))
    dispatcher.compile(signature)
    return cast(Callable[..., Result], dispatcher.overloads[signature].entry_point)


def inlined(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile into whatever calls it: for what is asked at every bar."""
    compile_it: Any = numba.njit(inline="always")
    return cast(Callable[Arguments, Result], compile_it(function))


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile at the first call, by the rules of IEEE 754: no sum is reordered, nothing is fused.

    So the same bars give the same bits on every processor.
    """
    compile_it: Any = numba.njit(cache=CACHE is not None, fastmath=False)
    return cast(Callable[Arguments, Result], compile_it(function))
