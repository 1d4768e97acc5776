from pathlib import Path

import pytest

from trainops.datasets import registering
from trainops.datasets.directory import Directory


@pytest.fixture
def data(tmp_path) -> Path:
    """An empty directory for data."""
    root = tmp_path / "data"
    root.mkdir()
    return root


@pytest.fixture
def register(tmp_path):
    """Register a directory without a server; return its location file."""

    def register(root: Path) -> Path:
        return registering.registered(root, "ds_0123456789abcdef", tmp_path)

    return register


@pytest.fixture
def registered(register):
    """Register a directory without a server; return it as a job sees it."""
    return lambda root: Directory.open(register(root), seed=0)
