"""Which pages there are, their Markdown, and their order."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import yaml

from trainops.documentation import commands, glossary, http_requests, kinds, python_api
from trainops.kind import KINDS

SOURCES = Path(__file__).parent / "sources"  # links into the repository; a wheel holds the files
INDEX = "index.md"
TOP_LEVEL = {  # page -> file at the top of the repository; other pages are files of docs/
    INDEX: "README.md",
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security-policy.md": "SECURITY.md",
}
ADR = "adr/index.md"
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"[a-z]+:|#|/")  # how targets begin that are no relative paths


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """One line of the navigation: a page, or a section with further lines."""

    title: str
    path: str = ""
    children: tuple["NavigationEntry", ...] = ()


@cache
def generated() -> Mapping[str, Callable[[], str]]:
    """Return the functions that write pages, by the page's path."""
    return {
        ADR: _decisions,
        "reference/commands.md": commands.page,
        "reference/glossary.md": partial(glossary.page, SOURCES / "CONTRIBUTING.md"),
        "reference/http.md": partial(http_requests.page, SOURCES / "docs/openapi.yaml"),
        "reference/python.md": python_api.page,
        **{f"reference/kinds/{name}.md": partial(kinds.page, name) for name in KINDS},
    }


@cache
def paths() -> frozenset[str]:
    """Return the path of every page, such as "adr/0001-….md", relative to docs/."""
    root = SOURCES / "docs"
    written = [*root.glob("*.md"), *(root / "adr").glob("*.md")]
    return frozenset(
        {*generated(), *TOP_LEVEL, *(each.relative_to(root).as_posix() for each in written)}
    )


@cache
def markdown(path: str) -> str:
    """Return the text of a page; its links lead to pages. Raises KeyError: there is none."""
    if path not in paths():
        raise KeyError(path)
    write = generated().get(path)
    text = write() if write else (SOURCES / _file(path)).read_text()
    parts = FENCED.split(text)
    parts[::2] = [LINK.sub(partial(_linked, path), part) for part in parts[::2]]
    return "".join(parts)


def title(path: str) -> str:
    """Return the first heading of a page."""
    heading = re.search(r"^# (.+)$", markdown(path), re.MULTILINE)
    return heading[1].strip() if heading else path


@cache
def navigation() -> tuple[NavigationEntry, ...]:
    """Return the order of pages: `nav` of mkdocs.yml, its folders expanded."""
    return _entries(yaml.safe_load((SOURCES / "mkdocs.yml").read_text())["nav"])


def entries(of: Sequence[NavigationEntry]) -> Iterator[NavigationEntry]:
    """Yield the lines with a page, those of sections, too."""
    for each in of:
        if each.path:
            yield each
        yield from entries(each.children)


def slug(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading, as GitHub does."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def _entries(nav: Sequence[Mapping[str, object]]) -> tuple[NavigationEntry, ...]:
    return tuple(_entry(name, value) for each in nav for name, value in each.items())


def _entry(name: str, value: object) -> NavigationEntry:
    if isinstance(value, list):
        return NavigationEntry(name, children=_entries(value))
    if not str(value).endswith("/"):
        return NavigationEntry(name, str(value))
    inside = [each for each in sorted(paths()) if each.startswith(str(value)) and each != ADR]
    first = [NavigationEntry("Overview", ADR)] if ADR.startswith(str(value)) else []
    return NavigationEntry(
        name, children=(*first, *(NavigationEntry(title(each), each) for each in inside))
    )


def _file(path: str) -> str:
    """Return the path of a page's source in the repository."""
    return TOP_LEVEL.get(path, f"docs/{path}")


def _linked(path: str, found: re.Match[str]) -> str:
    """Return a link of a page: to a page or file of the site, else only its text."""
    mark, text, target = found.groups()
    if ELSEWHERE.match(target):
        return found[0]
    name, _, anchor = target.partition("#")
    source = posixpath.normpath(posixpath.join(posixpath.dirname(_file(path)), name))
    page = _page(source)
    if page is None:
        return text if source in text else f"{text} (`{source}`)"
    relative = posixpath.relpath(page, posixpath.dirname(path) or ".")
    return f"{mark}[{text}]({relative}{'#' if anchor else ''}{anchor})"


def _page(source: str) -> str | None:
    """Return the page or the file of the site that a path of the repository is, if any."""
    if source == "docs/adr":
        return ADR
    for page, file in TOP_LEVEL.items():
        if file == source:
            return page
    inside = source.removeprefix("docs/")
    is_there = source.startswith("docs/") and (inside in paths() or is_file(inside))
    return inside if is_there else None


def is_file(path: str) -> bool:
    """Whether the site has this picture or other file."""
    return path in {each.name for each in (SOURCES / "docs").iterdir() if each.suffix != ".md"}


def _decisions() -> str:
    found = sorted(each for each in paths() if each.startswith("adr/") and each != ADR)
    lines = [f"- [{title(each)}]({posixpath.basename(each)})" for each in found]
    text = "A record describes one decision: its reasons, what was rejected, and what follows."
    return "\n".join(["# Decisions", "", text, "", *lines, ""])
