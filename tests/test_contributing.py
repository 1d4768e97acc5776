"""CONTRIBUTING.md sends people to files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMED = re.findall(
    r"`((?:apps|trainops|templates|tests|docs)/[\w/.-]+)`", (ROOT / "CONTRIBUTING.md").read_text()
)


@pytest.mark.parametrize("path", [each for each in NAMED if "NAME" not in each])
def test_a_named_file_exists(path):
    assert (ROOT / path).exists()
