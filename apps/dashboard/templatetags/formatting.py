"""The words of apps.dashboard.formatting, for templates."""

import json
from collections.abc import Mapping
from datetime import datetime

from django import template
from django.conf import settings
from django.utils.safestring import SafeString

from apps.dashboard import formatting, histograms
from apps.operations import badges

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
register.filter("bars", histograms.bars)
register.simple_tag(badges.state_badge, name="state_badge")
register.simple_tag(badges.progress_bar, name="progress")


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
