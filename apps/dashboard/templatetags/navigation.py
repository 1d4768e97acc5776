"""The navigation menu of every page, with its counts."""

from typing import cast

from django import template
from django.http import HttpRequest
from django.template import Context
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.dashboard import menu, tour
from apps.operations.requests import access
from trainops.gateway.live import OFFERED

register = template.Library()
BADGE = (
    '<span class="badge bg-{}-lt" data-count-of="{}"{}><span data-number>{}</span>'
    '<span class="visually-hidden"> {}</span></span>'
)


@register.simple_tag
def platform_counts() -> menu.PlatformCounts:
    """Return what `menu.platform_counts` does."""
    return menu.platform_counts()


@register.filter
def starts_tour(request: HttpRequest | str) -> bool:
    """Return whether this page starts the tour; a page of an error may have no request."""
    has_session = isinstance(request, HttpRequest) and hasattr(request, "session")
    return has_session and tour.is_due(cast(HttpRequest, request))


@register.filter
def may_submit(request: HttpRequest | str) -> bool:
    """Return whether the reader may submit operations; a page of an error may have no request."""
    return isinstance(request, HttpRequest) and access.may_create(request.user)


@register.simple_tag(takes_context=True)
def nav_link(context: Context, url: str, label: str, *badges: SafeString) -> SafeString:
    """Render a link of the menu; `badges` are those of `menu_badge`."""
    path = context["request"].path if "request" in context else ""
    is_here = path == url or (url != "/" and path.startswith(url))
    is_here = is_here or (url == "/" and path.startswith("/operations/"))
    counts = format_html_join(" ", "{}", ((each,) for each in badges))
    return format_html(
        '<li class="nav-item{}"><a class="nav-link" href="{}"{}>'
        '<span class="nav-link-title">{}</span>{}</a></li>',
        " active" if is_here else "",
        url,
        SafeString(' aria-current="page"') if is_here else "",
        label,
        format_html('<span class="ms-auto">{}</span>', counts) if badges else "",
    )


@register.simple_tag
def menu_badge(name: str, count: int, meaning: str, colour: str = "blue") -> SafeString:
    """Render a count of the menu that open pages keep true; it is hidden where it is 0."""
    hidden = "" if count else SafeString(" hidden")
    return format_html(BADGE, colour, name, hidden, f"{count:,}", meaning)


@register.filter
def has_streams(request: HttpRequest | str) -> bool:
    """Whether the server sends events: the gateway does, Django's own servers do not."""
    return isinstance(request, HttpRequest) and OFFERED in request.META
