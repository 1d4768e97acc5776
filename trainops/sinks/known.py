"""Which sinks there are, and how one is written."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from trainops.sinks.details import Details, Pages

VARIABLE = "TRAINOPS_SINKS"


@dataclass(frozen=True, slots=True)
class Sink:
    """The module that writes it, and the package that this needs."""

    module: str
    library: str = ""  # empty: none
    extra: str = ""  # of trainops, that installs the library


SINKS = {
    "tensorboard": Sink("trainops.sinks.tensorboard", "tensorboard", "tensorboard"),
    "mlflow": Sink("trainops.sinks.mlflow"),
    "wandb": Sink("trainops.sinks.wandb", "wandb", "wandb"),
}


def write(name: str, directory: Path, details: Details, pages: Pages) -> None:
    """Write the points of one operation below a directory; earlier files of it are replaced.

    `directory` is the log directory of TensorBoard, the file store of MLflow, or the directory of
    offline runs of Weights & Biases. A crash leaves no point twice, and the next call completes
    what is missing.

    Raises:
        ValueError: the sink is not known, or its package is missing.
        OSError: the directory cannot be written; the earlier files are still there.
        PointsChanged: raised by `pages`; likewise.
    """
    require(name)
    module = import_module(SINKS[name].module)
    write_to: Callable[[Path, Details, Pages], None] = module.write
    write_to(directory, details, pages)


def require(name: str, where: str = "sink") -> None:
    """Raise ValueError unless the sink is known and its package is installed."""
    if name not in SINKS:
        raise ValueError(f"{where}: got {name!r}; allowed: {', '.join(SINKS)}")
    sink = SINKS[name]
    if sink.library and not _is_installed(sink.library):
        raise ValueError(
            f"{where}: {name} needs the package {sink.library}, which is not installed; "
            f"install the extra {sink.extra!r}: pip install 'trainops[{sink.extra}]'"
        )


def _is_installed(library: str) -> bool:
    found = find_spec(library)
    return found is not None and found.origin is not None  # a directory of that name has none


def read(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the sinks that TRAINOPS_SINKS names. Raises ValueError as `require`."""
    given = environment.get(VARIABLE, "").split(",")
    names = tuple(dict.fromkeys(name.strip() for name in given if name.strip()))
    for name in names:
        require(name, VARIABLE)
    return names
