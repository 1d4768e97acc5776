"""Parts of Markdown that are the same on all generated pages."""

from collections.abc import Iterable, Sequence


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; empty without rows."""
    lines = [f"| {' | '.join(_cell(each) for each in row)} |" for row in rows]
    rule = f"|{'---|' * len(heading)}"
    return "\n".join([f"| {' | '.join(heading)} |", rule, *lines]) if lines else ""


def page(*parts: str) -> str:
    """Return paragraphs with an empty line between two; empty ones are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
