"""States and progress as the pages and the admin draw them; styled by static/css/states.css."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.operations.lifecycle import State

# state → (word, colour of the stylesheet)
BADGES = {
    State.PENDING: ("Queued", "secondary"),
    State.RUNNING: ("Running", "blue"),
    State.RESUMING: ("Resuming", "azure"),
    State.COMPLETED: ("Completed", "green"),
    State.FAILED: ("Failed", "red"),
    State.CANCELLED: ("Cancelled", "orange"),
}
STOPPING = {"cancel": ("Cancelling", "orange"), "kill": ("Killing", "red")}


def badge(state: str, stop_requested: str = "") -> tuple[str, str]:
    """Return (word, colour) of an operation's state."""
    if state == State.RUNNING and stop_requested:
        return STOPPING[stop_requested]
    return BADGES[State(state)]


def state_badge(state: str, stop_requested: str = "") -> SafeString:
    word, colour = badge(state, stop_requested)
    return format_html(
        '<span class="status status-{}" data-testid="state" data-state="{}">'
        '<span class="status-dot{}" aria-hidden="true"></span>{}</span>',
        colour,
        state,
        " status-dot-animated" if state == State.RUNNING else "",
        word,
    )


def progress_bar(percent: float, colour: str, label: str) -> SafeString:
    """A bar without an inline style, which the security policy refuses."""
    return format_html(
        '<progress class="bar bar-{}" max="100" value="{}" aria-label="{}"></progress>',
        colour,
        f"{percent:.2f}",
        label,
    )
