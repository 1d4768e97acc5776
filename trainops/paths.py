"""Where the program's own files are, in a clone of the repository and installed by pip.

Standard library only: `up` needs it before anything is installed.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # `trainops` and `apps` are imported from here
CLONE = ROOT if (ROOT / "pyproject.toml").is_file() else None  # None: installed
COMMAND = "python3 -m trainops" if CLONE else "trainops"

# In a clone both are links to the folders at the top level; a wheel holds the files themselves.
TEMPLATES, STATIC = PACKAGE / "templates", PACKAGE / "static"


def data_dir() -> Path:
    """Return TRAINOPS_DATA_DIR, or the default where it is not set."""
    given = os.environ.get("TRAINOPS_DATA_DIR")
    return Path(given) if given else default_data_dir()


def default_data_dir() -> Path:
    """Return `var` in a clone, else `trainops` in the user's data directory (XDG)."""
    if CLONE:
        return CLONE / "var"
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "trainops"
