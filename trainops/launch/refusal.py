"""The one exception of the launcher."""


class CannotStart(Exception):
    """Something outside the program is in the way; the message is one line that says what to do."""
