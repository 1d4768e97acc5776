"""Runs jobs that can be stopped and resumed. As a library: see examples/library.py.

The public names below are imported when they are needed, as modules of this package are also read
by processes that must not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainops.runtime.checkpoint.manifest import read_manifest
    from trainops.runtime.checkpoint.store import (
        Candidate,
        Checkpoint,
        CheckpointPolicy,
        CheckpointStore,
    )
    from trainops.runtime.job import Progress
    from trainops.runtime.loop import Directive, Failed, Outcome, Stopped, Succeeded, run
    from trainops.runtime.receipt import Receipt
    from trainops.runtime.reproducibility import set_determinism
    from trainops.runtime.supervisor import Supervisor

__all__ = [
    "Candidate",
    "Checkpoint",
    "CheckpointPolicy",
    "CheckpointStore",
    "Directive",
    "Failed",
    "Outcome",
    "Progress",
    "Receipt",
    "Stopped",
    "Succeeded",
    "Supervisor",
    "read_manifest",
    "run",
    "set_determinism",
]

_MODULES = {
    "trainops.runtime.checkpoint.manifest": ["read_manifest"],
    "trainops.runtime.checkpoint.store": [
        "Candidate",
        "Checkpoint",
        "CheckpointPolicy",
        "CheckpointStore",
    ],
    "trainops.runtime.job": ["Progress"],
    "trainops.runtime.loop": ["Directive", "Failed", "Outcome", "Stopped", "Succeeded", "run"],
    "trainops.runtime.receipt": ["Receipt"],
    "trainops.runtime.reproducibility": ["set_determinism"],
    "trainops.runtime.supervisor": ["Supervisor"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
