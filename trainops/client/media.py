"""What the recipe of an operation logged besides numbers."""

import json
import re
from pathlib import Path

from trainops.client.api import Api
from trainops.client.problems import ExitCode, Problem
from trainops.client.responses import LoggedMedia, MediaStep

SUFFIXES = {"image": "png", "audio": "wav"}  # all others: JSON


def listed(api: Api, operation_id: str, name: str | None = None) -> list[LoggedMedia]:
    """Return names with their steps, each with the items that were logged together."""
    found: list[LoggedMedia] = api.get(f"operations/{operation_id}/media", name=name)
    return found


def save(api: Api, operation_id: str, directory: Path, name: str | None = None) -> list[Path]:
    """Write the items of a name, or of all, into a directory; return their paths.

    Raises Problem (there are none) and OSError.
    """
    found = listed(api, operation_id, name)
    if not found:
        known = ", ".join(each["name"] for each in listed(api, operation_id)) or "none"
        wanted = "no media" if name is None else f"no media named {name!r}"
        raise Problem(f"{operation_id} has {wanted}; there are: {known}", ExitCode.NOT_FOUND)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for named in found:
        for step in named["steps"]:
            for item in step["items"]:
                path = directory / _file_name(named["name"], step, int(item["id"]))
                _write(api, f"operations/{operation_id}/media/{int(item['id'])}", path)
                paths.append(path)
    return paths


def _write(api: Api, address: str, path: Path) -> None:
    if path.suffix == ".json":
        path.write_text(json.dumps(api.get(address)), encoding="utf-8")
    else:
        api.download(address, path)


def _file_name(name: str, step: MediaStep, number: int) -> str:
    """Return a name that is unique by the item's id, whatever characters the name has."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name)
    return f"{plain}-{int(step['step']):010}-{number}.{SUFFIXES.get(step['type'], 'json')}"
