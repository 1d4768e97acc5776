"""The key of encrypted backups, from a file."""

from pathlib import Path

from blake3 import blake3

from apps.backups.errors import KeyProblem
from trainops.encrypted_files import FileKey
from trainops.key_files import NotAKey, read_secrets


class BackupKey(FileKey):
    def __init__(self, secret: bytes) -> None:
        super().__init__(secret, "backup")
        self._names = self.derived("names")

    def name_of(self, digest: str) -> str:
        """Return the name of a file, which does not reveal the digest of its content."""
        return blake3(bytes.fromhex(digest), key=self._names).hexdigest()


def read_key(path: Path) -> BackupKey:
    """Return the key of a file. Raises KeyProblem."""
    try:
        secret, *others = read_secrets(path)
    except OSError as error:
        raise KeyProblem(f"The key {path} cannot be read: {error.strerror}.") from error
    except NotAKey as error:
        raise KeyProblem(str(error)) from None
    if others:
        raise KeyProblem(f"{path} has {1 + len(others)} keys; allowed: one.")
    return BackupKey(secret)
