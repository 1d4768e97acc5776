"""The fields of a config beside their defaults and the values of the parent operation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apps.operations.comparisons.differences import equal, flatten
from apps.operations.models import Operation
from apps.operations.requests import warm_starting
from apps.operations.requests.submission import with_platform_defaults
from trainops.kind import KINDS
from trainops.runtime.errors import ConfigError

NONE: Final = object()  # no value: the field is required, or the parent does not have it


@dataclass(frozen=True, slots=True)
class ConfigField:
    """A field by its dotted path, with its value, its default and the value of the parent."""

    path: str
    value: object
    default: object
    before: object

    @property
    def is_changed(self) -> bool:
        """Whether it differs from the default; a required field always does."""
        return self.default is NONE or not equal(self.value, self.default)

    @property
    def differs_from_parent(self) -> bool:
        return self.before is NONE or not equal(self.value, self.before)


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """The fields of an operation's config, in their order. parent: of a fork or a warm start.

    has_defaults is false where the recipe of the config is gone, or takes other fields by now.
    """

    rows: list[ConfigField]
    parent: Operation | None
    has_defaults: bool


def of(operation: Operation) -> ConfigFields:
    """Return the fields of an operation's config."""
    defaults = _defaults(operation)
    parent = operation.forked_from or warm_starting.source_of(operation)
    before = flatten(parent.config) if parent else {}
    rows = [
        ConfigField(path, value, (defaults or {}).get(path, NONE), before.get(path, NONE))
        for path, value in flatten(operation.config).items()
    ]
    return ConfigFields(rows, parent, defaults is not None)


def _defaults(operation: Operation) -> Mapping[str, object] | None:
    """Return the defaults by path: those of this installation, of the kind and of the recipe."""
    try:
        config = KINDS[operation.kind].parse_config(operation.config)
    except ConfigError:
        return None
    return flatten(config.defaults()) | flatten(with_platform_defaults(operation.kind, {}))
