"""Whole numbers from the text of a request."""

MAX_DIGITS = 18


def whole_number(text: str, lowest: int, highest: int) -> int | None:
    """Return the number if the text is one from `lowest` (not negative) to `highest`."""
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        return None
    number = int(text)
    return number if lowest <= number <= highest else None
