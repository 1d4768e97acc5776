"""The status of a worker as the pages and the admin draw it; styled by static/css/states.css."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

COLOURS = {
    "AVAILABLE": "green",
    "BUSY": "blue",
    "STORAGE_AWAY": "orange",
    "DRAINING": "azure",
    "TEMPORARILY_UNAVAILABLE": "orange",
    "GONE": "secondary",
}


def status_badge(status: str) -> SafeString:
    return format_html(
        '<span class="status status-{}"><span class="status-dot" aria-hidden="true"></span>'
        "{}</span>",
        COLOURS[status],
        status.replace("_", " ").capitalize(),
    )
