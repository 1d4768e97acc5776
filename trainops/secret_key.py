"""The keys that sign sessions: from the environment, a file, or the data directory."""

import os
import secrets
from pathlib import Path


def secret_keys(data_dir: Path) -> list[str]:
    """Return the installation's keys, making one (mode 0600) at the first start.

    The first one signs; what a later one has signed is accepted, too. Each is a line of the file or
    of the environment variable. Raises ValueError if there is none.
    """
    given, source = os.environ.get("TRAINOPS_SECRET_KEY"), "TRAINOPS_SECRET_KEY"
    if not given:
        path = Path(os.environ.get("TRAINOPS_SECRET_KEY_FILE") or data_dir / "secret_key")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_once(path, secrets.token_urlsafe(50))
        given, source = path.read_text(), str(path)
    keys = [key for line in given.splitlines() if (key := line.strip())]
    if not keys:
        raise ValueError(f"{source} has no key; allowed: a key in each line, the newest first")
    return keys


def _write_once(path: Path, key: str) -> None:
    """Several processes may start together: link() lets exactly one of their keys become it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
