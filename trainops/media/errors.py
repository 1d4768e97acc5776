"""What is wrong with something that was logged."""


class MediaError(ValueError):
    """It cannot be logged; the message says what was given and what is allowed."""
