"""What can be asked for: each address of the project, with the names of what it reads."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.urls import get_resolver
from django.urls.resolvers import URLResolver
from drf_spectacular.generators import SchemaGenerator

ROOT = Path(__file__).resolve().parents[2]
PARAMETER = re.compile(r"<(?:(\w+):)?(\w+)>")
IN_QUERY = re.compile(r"""GET(?:\.get(?:list)?\(|\[)["'](\w+)""")
IN_FORM = re.compile(r"""POST(?:\.get(?:list)?\(|\[)["']([\w.]+)""")
IN_TEMPLATE = re.compile(r'name="([\w.-]+)"')
FILTERS = ("state", "kind", "owner", "worker", "tag", "search", "since", "until", "sort")
HEADERS = [
    "Authorization", "Idempotency-Key", "Cookie", "Accept", "Accept-Language", "Referer", "Origin",
    "If-None-Match", "If-Modified-Since", "Range", "Content-Type", "X-Requested-With",
    "X-Forwarded-For", "X-Forwarded-Proto", "User-Agent", "X-CSRFToken", "Content-Length",
]  # fmt: skip


@dataclass(frozen=True)
class Address:
    """`template` has {name} for each argument."""

    template: str
    arguments: tuple[str, ...]

    @property
    def is_api(self):
        return self.template.startswith("/api/")


def addresses():
    """Yield every address of the project, those of the admin included."""
    found = {each for each in _below(get_resolver(), "/") if "(" not in each.template}
    return sorted(found, key=lambda each: each.template)


def _below(resolver, prefix):
    for pattern in resolver.url_patterns:
        route = prefix + _plain(str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            yield from _below(pattern, route)
        else:
            yield Address(route, tuple(re.findall(r"{(\w+)}", route)))


def _plain(route):
    """Return a route with {name} for its arguments; a regular expression keeps its brackets."""
    return PARAMETER.sub(lambda found: "{" + found[2] + "}", route.lstrip("^").rstrip("$"))


@cache
def query_names(template):
    """The names of all parameters that may be read from this address's query."""
    if template in schema()["paths"]:
        return sorted(_described(template, "query")) or ["x"]
    from_code = {name for text in _sources("apps", "trainops") for name in IN_QUERY.findall(text)}
    return sorted(from_code | {"q", "p", "o", "e", "_popup", "_changelist_filters", *FILTERS})


def _described(template, place):
    for operation in schema()["paths"][template].values():
        yield from (each["name"] for each in operation.get("parameters", ()) if each["in"] == place)


@cache
def form_names():
    from_code = {name for text in _sources("apps", "trainops") for name in IN_FORM.findall(text)}
    templates = (path.read_text() for path in ROOT.glob("templates/**/*.html"))
    shown = {name for text in templates for name in IN_TEMPLATE.findall(text)}
    return sorted(from_code | shown | {"action", "_selected_action", "index", "select_across"})


@cache
def body_names(template):
    """The names of the fields of the bodies that this address takes."""
    found = set()
    for operation in schema()["paths"].get(template, {}).values():
        for content in operation.get("requestBody", {}).get("content", {}).values():
            reference = content["schema"].get("$ref", "/").rpartition("/")[2]
            found |= set(schema()["components"]["schemas"].get(reference, {}).get("properties", ()))
    return sorted(found) or ["x"]


def takes_files(template):
    """Whether the address takes a form with a file."""
    operations = schema()["paths"].get(template, {}).values()
    contents = (each.get("requestBody", {}).get("content", {}) for each in operations)
    return any("multipart/form-data" in each for each in contents)


@cache
def schema():
    return SchemaGenerator().get_schema(request=None, public=True)


def _sources(*folders):
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            yield path.read_text()
