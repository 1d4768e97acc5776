from pathlib import Path
from typing import Any


def place(settings: Any, root: Path) -> None:
    """Have the checkpoints and the datasets of this process in empty storages below `root`."""
    settings.CHECKPOINT_ROOT = root / "checkpoints"
    location = {"OPTIONS": {"location": root / "datasets"}}
    settings.STORAGES = settings.STORAGES | {"datasets": settings.STORAGES["datasets"] | location}
