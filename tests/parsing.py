"""Record which configs this process validates."""

from trainops.kind import Kind
from trainops.runtime.config import OperationConfig


def parsed_configs(monkeypatch):
    """Return lists that fill: what descriptors of kinds and config classes are given from now."""
    found = {"kind": [], "class": []}
    of_kind, validate = Kind.parse_config, OperationConfig.model_validate.__func__

    def by_kind(kind, raw):
        found["kind"].append(raw)
        return of_kind(kind, raw)

    def by_class(config_class, raw, **options):
        found["class"].append(raw)
        return validate(config_class, raw, **options)

    monkeypatch.setattr(Kind, "parse_config", by_kind)
    monkeypatch.setattr(OperationConfig, "model_validate", classmethod(by_class))
    return found
