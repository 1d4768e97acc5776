"""Labels: a word for what is special about a machine (`a100`, `hospital-3`)."""

import re

LABEL_PATTERN = r"^[A-Za-z0-9_.-]{0,64}\Z"  # empty: none
LABEL_RULE = "at most 64 letters, digits, '_', '.' and '-' are allowed"


def is_label(text: str) -> bool:
    return re.match(LABEL_PATTERN, text) is not None
