"""The glossary: the table of words in CONTRIBUTING.md, without the column for contributors."""

import re
from pathlib import Path

from trainops.documentation.text import page as joined
from trainops.documentation.text import table

ROW = re.compile(r"^\| (.+?) \| (.+?) \|", re.MULTILINE)


def page(source: Path) -> str:
    """Return the Markdown of the terms, in their order there."""
    _, _, words = source.read_text().partition("| term | meaning |")
    rows = [(term, meaning) for term, meaning in ROW.findall(words) if "---" not in term]
    return joined(
        "# Glossary",
        "A word has one meaning in pages, commands, the API and the code.",
        table(("term", "meaning"), rows),
    )
