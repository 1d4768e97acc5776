"""The keys that sign sessions: from the environment, a file, or the data directory."""

import os
import secrets
from pathlib import Path

MIN_CHARACTERS = 32  # of a key that is a line of several


def secret_keys(data_dir: Path) -> list[str]:
    """Return the installation's keys, making one (mode 0600) at the first start.

    The first one signs; what a later one has signed is accepted, too. The environment variable has
    one key, the file one in each line. Raises ValueError where the file has none.
    """
    if given := os.environ.get("TRAINOPS_SECRET_KEY"):
        return [given]
    path = Path(os.environ.get("TRAINOPS_SECRET_KEY_FILE") or data_dir / "secret_key")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_once(path, secrets.token_urlsafe(50))
    whole = path.read_text().strip()
    if not whole:
        raise ValueError(f"{path} has no key; allowed: a key in each line, the newest first")
    lines = [line.strip() for line in whole.splitlines() if line.strip()]
    if min(map(len, lines)) < MIN_CHARACTERS:
        return [whole]  # one key that was wrapped
    return lines if len(lines) == 1 else [*lines, whole]  # earlier versions took it as one


def _write_once(path: Path, key: str) -> None:
    """Several processes may start together: link() lets exactly one of their keys become it.

    Processes in containers that share the directory may have the same number.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
