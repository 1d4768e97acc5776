"""The tab of a config: its fields as a table, and the texts that are copied."""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.dashboard.comparing import text
from apps.operations.comparisons import config_fields
from apps.operations.comparisons.config_fields import NONE, ConfigField
from apps.operations.models import Operation
from trainops import operation_yaml


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A field as text. Empty `default` and `before`: there is none."""

    path: str
    value: str
    default: str
    before: str
    is_changed: bool
    differs_from_parent: bool


def of(operation: Operation) -> Mapping[str, object]:
    """Return the context of the tab."""
    found = config_fields.of(operation)
    lines = [_line(each, found) for each in found.rows]
    return {
        "config_lines": lines,
        "num_changed": sum(line.is_changed for line in lines),
        "config_parent": found.parent,
        "num_other": sum(line.differs_from_parent for line in lines),
        "has_defaults": found.has_defaults,
        "config_yaml": operation_yaml.written(
            operation.kind,
            operation.name,
            operation.config_given,
            tags=[tag.name for tag in operation.tags.all()],
            priority=operation.priority,
            queue=operation.queue,
            project=operation.project,
        ),
    }


def _line(field: ConfigField, found: config_fields.ConfigFields) -> ConfigRow:
    return ConfigRow(
        path=field.path,
        value=text(field.value),
        default="" if field.default is NONE else text(field.default),
        before="" if field.before is NONE else text(field.before),
        is_changed=found.has_defaults and field.is_changed,
        differs_from_parent=found.parent is not None and field.differs_from_parent,
    )
