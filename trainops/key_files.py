"""Files with the keys by which other files are encrypted: 64 hexadecimal digits a line."""

from pathlib import Path

SECRET_BYTES = 32
HOW_TO = "umask 077; openssl rand -hex 32 > FILE"


class NotAKey(ValueError):
    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is not a key: it must have {SECRET_BYTES * 2} hexadecimal digits. "
            f"Make one with: {HOW_TO}"
        )


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """Return the different keys of a file, one of each line. Raises NotAKey, OSError."""
    try:
        secrets = tuple(dict.fromkeys(bytes.fromhex(line) for line in path.read_text().split()))
    except ValueError:
        raise NotAKey(path) from None
    if not secrets or any(len(each) != SECRET_BYTES for each in secrets):
        raise NotAKey(path)
    return secrets
