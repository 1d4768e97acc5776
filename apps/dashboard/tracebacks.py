"""Tracebacks as a reader wants them: from the first frame that is not of a library."""

import re

LIBRARY = re.compile(
    r"/(site|dist)-packages/|/lib/python3|<frozen |"
    r"/trainops/(runtime|process|learning|market|kinds/\w+/(?!recipes/)|[a-z_]+\.py)"
)
FRAME = re.compile(r'^ +(?:\| )*File "([^"]*)", line \d+', re.MULTILINE)
MAX_OPEN_LINES = 20


def own_part(traceback: str) -> str:
    """Return the last traceback from the first frame of the user's code; empty: it has none."""
    start = max(0, traceback.rfind("Traceback (most recent call last):"))
    for frame in FRAME.finditer(traceback, start):
        if not LIBRARY.search(frame[1]):
            return traceback[frame.start() :]
    return ""


def is_short(traceback: str) -> bool:
    """Whether it is shown open."""
    return 0 < len(traceback.splitlines()) <= MAX_OPEN_LINES
