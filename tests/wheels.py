"""Wheels of this clone and of packages beside it, and environments that they are installed in."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"
SOURCES = (
    "apps", "trainops", "templates", "static", "docs", "mkdocs.yml", "pyproject.toml", "LICENSE",
    "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
)  # fmt: skip


def run(*command: str | Path, **options) -> str:
    """Run a command that must succeed; return its standard output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wheel_of_clone(directory: Path) -> Path:
    """Build trainops from a copy of its sources: the build writes beside them."""
    source = directory / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, source)
    return wheel_of(source, directory)


def wheel_of(source: Path, directory: Path) -> Path:
    """Build a wheel with the setuptools that is here, without the network."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", directory / "wheels"]
    before = set((directory / "wheels").glob("*.whl"))
    run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=directory)
    (wheel,) = set((directory / "wheels").glob("*.whl")) - before
    return wheel


def environment_with(directory: Path, *wheels: Path) -> Path:
    """Make an environment of these wheels and the packages of this one; return its `bin`."""
    run(sys.executable, "-m", "venv", "--without-pip", directory)
    bin_directory = directory / "bin"
    folder = run(bin_directory / "python", "-c", PURELIB)
    # A path alone: what .pth files over there say is not read.
    Path(folder.strip(), "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed"]
    pip = [sys.executable, "-m", "pip", "--python", bin_directory / "python"]
    run(*pip, "install", *options, *wheels)
    return bin_directory


def plain_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without what tests set for the clone."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TRAINOPS_", "PYTHON", "DJANGO_"))
    }
    return kept | more
