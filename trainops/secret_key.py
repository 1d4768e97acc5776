"""The key that signs sessions: from the environment, a file, or the data directory."""

import os
import secrets
from pathlib import Path


def secret_key(data_dir: Path) -> str:
    """Return the installation's key, making one (mode 0600) at the first start."""
    if given := os.environ.get("TRAINOPS_SECRET_KEY"):
        return given
    path = Path(os.environ.get("TRAINOPS_SECRET_KEY_FILE") or data_dir / "secret_key")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_once(path, secrets.token_urlsafe(50))
    return path.read_text().strip()


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
