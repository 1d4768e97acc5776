"""The Python client: `from trainops.client import Client`. Names are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainops.client.asynchronous import AsyncClient, AsyncHandle
    from trainops.client.handles import Client, Handle, OperationFailed
    from trainops.client.problems import Problem, Refused, Unreachable

__all__ = [
    "AsyncClient", "AsyncHandle", "Client", "Handle", "OperationFailed", "Problem", "Refused",
    "Unreachable",
]  # fmt: skip
_MODULES = {
    "AsyncClient": "asynchronous",
    "AsyncHandle": "asynchronous",
    "Client": "handles",
    "Handle": "handles",
    "OperationFailed": "handles",
    "Problem": "problems",
    "Refused": "problems",
    "Unreachable": "problems",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"trainops.client.{_MODULES[name]}"), name)
