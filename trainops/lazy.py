"""Objects named by strings, imported when they are needed."""

from importlib import import_module
from typing import Any


class NotLoadable(Exception):
    """A string names no module, or nothing in it."""


def load(path: str) -> Any:
    """Return the object that "package.module:NAME" names. Raises NotLoadable."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise NotLoadable(f"{path!r} cannot be loaded: {error}") from error
