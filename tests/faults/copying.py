"""A copy of the project, in which one file is changed while tests of it run."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "apps", "docs", "static", "templates", "tests", "trainops", "manage.py", "pyproject.toml",
    "mkdocs.yml", "ARCHITECTURE.md", "README.md",
)  # fmt: skip
SOME_FAILED = 1  # pytest's exit code; others say that nothing could be tested


def copy_project(to: Path) -> Path:
    """Copy the project into an existing directory, and return that."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "vendor")
            shutil.copytree(ROOT / name, to / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, to / name)
    return to


def run_changed(
    copy: Path, path: str, source: str, tests: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run tests in the copy while this file has this content, to the first that fails."""
    file = copy / path
    whole = file.read_text()
    file.write_text(source)
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, *tests], cwd=copy, capture_output=True, text=True, check=False
        )
    finally:
        file.write_text(whole)
