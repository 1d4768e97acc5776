"""Times in options."""

import re
import time
from datetime import UTC, datetime

import typer

from trainops.cli import looks

AGO = re.compile(r"([1-9][0-9]{0,8})([smhd])")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def since(text: str) -> str:
    """Return an ISO time, or one so long ago as the text of `--since` says."""
    if (found := AGO.fullmatch(text)) is not None:
        ago = int(found[1]) * UNITS[found[2]]
        return datetime.fromtimestamp(max(0.0, time.time() - ago), UTC).isoformat()
    if (given := looks.moment(text)) is None:
        allowed = "90s, 30m, 2h, 1d or an ISO time"
        raise typer.BadParameter(f"--since: got {text!r}; allowed: {allowed}")
    return given.isoformat()
