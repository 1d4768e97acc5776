"""The words of apps.dashboard.formatting, for templates."""

import json
from collections.abc import Mapping
from datetime import datetime

from django import template
from django.conf import settings
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.dashboard import formatting

register = template.Library()
SHARES = (
    "return", "cagr", "max_drawdown", "average_drawdown", "win_rate", "exposure", "volatility",
    "alpha", "kelly",
)  # fmt: skip
register.filter("duration", formatting.duration)
register.filter("roughly", formatting.roughly)
register.filter("size", formatting.size)
register.filter("number", formatting.number)
register.filter("share", formatting.share)
register.filter("plural", formatting.plural)
register.filter("ago", formatting.moment)


@register.filter
def until(at: datetime | None) -> SafeString:
    return formatting.moment(at, "until")


@register.filter
def since(at: datetime | None) -> SafeString:
    return formatting.moment(at, "since")


@register.filter
def digest_time(hour: int) -> str:
    """Return the hour of a digest with its time zone, which is the server's."""
    return f"{hour:02d}:00 {settings.TIME_ZONE}"


@register.filter
def plain(value: object) -> str:
    """A cell of a table: JSON's words for yes and no, separators in numbers, texts as they are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else formatting.number(value)


@register.filter
def at(values: Mapping[str, object], name: str) -> object:
    """Return what a mapping holds under a name; a template cannot look up a name with dots."""
    return values.get(name)


@register.filter
def figure(value: object, name: str) -> str:
    """Return a figure of a result: as percent where it is a share, else as a number."""
    is_share = value is not None and name.rpartition(".")[2] in SHARES
    return formatting.share(value) if is_share else formatting.number(value)


@register.filter
def leaf(path: str) -> str:
    """Return the last name of a dotted path as words: "parameters.stop_loss" is "stop loss"."""
    return path.rpartition(".")[2].replace("_", " ")


@register.filter
def pretty_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


@register.simple_tag
def state_badge(state: str, stop_requested: str = "") -> SafeString:
    word, colour = formatting.badge(state, stop_requested)
    return format_html(
        '<span class="status status-{}" data-testid="state" data-state="{}">'
        '<span class="status-dot{}" aria-hidden="true"></span>{}</span>',
        colour,
        state,
        " status-dot-animated" if state == "RUNNING" else "",
        word,
    )


@register.simple_tag
def progress(percent: float, colour: str, label: str) -> SafeString:
    """A bar without an inline style, which the security policy refuses."""
    return format_html(
        '<progress class="bar bar-{}" max="100" value="{}" aria-label="{}"></progress>',
        colour,
        f"{percent:.2f}",
        label,
    )
