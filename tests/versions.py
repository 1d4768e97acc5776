"""Earlier versions of trainops, by their code in the history of this repository."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The commit of each released version. tests/fixtures/released has an installation made by each.
RELEASES = {"0.1.0": "f75454ea1cf17782256feeaa84c19a6660129846"}
LATEST = max(RELEASES, key=lambda version: [int(part) for part in version.split(".")])
# Python 3.11 has filters since 3.11.4.
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def export(commit: str, directory: Path) -> Path:
    """Write the files of a commit into a directory; skip the test where there is no history."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the history does not have {commit[:8]}: {done.stderr.decode().strip()}")
    directory.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(directory, **SAFELY)  # noqa: S202 - our own files
    return directory


def environment(tree: Path, **own: str) -> dict[str, str]:
    """Return the environment of a process of the version in this directory."""
    env = {**os.environ, "PYTHONPATH": str(tree), **own}
    env.pop("DJANGO_SETTINGS_MODULE", None)
    return env


def run(
    tree: Path, *arguments: str, env: dict[str, str], seconds: float = 300
) -> "subprocess.CompletedProcess[str]":
    """Run Python with the code in a directory to its end."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=tree, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )
