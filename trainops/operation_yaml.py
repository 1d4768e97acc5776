"""An operation as the YAML file that the command `run` takes."""

from collections.abc import Mapping

from trainops.plain_yaml import dumped


def written(kind: str, name: str, config: Mapping[str, object], **more: object) -> str:
    """Return the file; `more` are its further fields. Those that are empty are left out."""
    given = {key: each for key, each in {"name": name, **more}.items() if each}
    return dumped({"kind": kind, **given, "config": config})
