"""Addresses of the documentation's pages."""

from django import template

from trainops.documentation import pages, rendering

register = template.Library()


@register.filter
def docs_url(path: str) -> str:
    return rendering.url(path)


@register.filter
def docs_paths(entry: pages.NavigationEntry) -> list[str]:
    """Return the paths of all pages of a section."""
    return [each.path for each in pages.entries(entry.children)]
