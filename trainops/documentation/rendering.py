"""HTML of a page, and a search over all of them; used where MkDocs does not serve the site."""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from trainops.documentation import pages

PREFIX = "/docs/"
MAX_RESULTS, MAX_SNIPPET = 30, 200
# What is wider than the window is scrolled by keyboard, too; a header without text is a cell.
ACCESSIBLE = {
    "<table>": '<div class="docs-table" tabindex="0"><table class="table">',
    "</table>": "</table></div>",
    "<th></th>": "<td></td>",
    "<pre>": '<pre tabindex="0">',
}
MARKUP = re.compile(r"^[-: |]+$|```.*?$|[`*|#>]|\[([^\]]*)\]\([^)]*\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Heading:
    """An entry of a page's table of contents."""

    level: int
    title: str
    anchor: str


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A page as HTML, and its headings below the title."""

    html: str
    headings: tuple[Heading, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A section that matches a search."""

    title: str
    section: str
    url: str
    snippet: str


def url(path: str) -> str:
    """Return the address of a page or file."""
    if not path.endswith(".md"):
        return PREFIX + path
    bare = path.removesuffix(".md")
    bare = "" if bare == "index" else bare.removesuffix("/index")
    return f"{PREFIX}{bare}/" if bare else PREFIX


def path_of(address: str) -> str:
    """Return the page of an address below the prefix. Raises KeyError: there is none."""
    bare = address.strip("/") or "index"
    for path in (f"{bare}.md", f"{bare}/index.md"):
        if path in pages.paths() and url(path).strip("/") == f"{PREFIX}{address}".strip("/"):
            return path
    raise KeyError(address)


@cache
def document(path: str) -> RenderedPage:
    """Return a page. Raises KeyError: there is none."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(pages.markdown(path))
    headings = _anchored(tokens)
    for token in tokens:
        for child in token.children or ():
            _addressed(child, path)
    html = parser.renderer.render(tokens, parser.options, {})
    for tag, accessible in ACCESSIBLE.items():
        html = html.replace(tag, accessible)
    return RenderedPage(html, tuple(headings))


def search(query: str) -> list[Found]:
    """Return the sections with all words of a query; those with a word in a heading first."""
    words = query.lower().split()
    if not words:
        return []
    scored = []
    for order, (found, text) in enumerate(_sections()):
        body, heading = text.lower(), f"{found.title} {found.section}".lower()
        if all(word in body or word in heading for word in words):
            in_heading = sum(word in heading for word in words)
            count = sum(min(body.count(word), 9) for word in words)
            scored.append(((-in_heading, -count, order), found, text))
    scored.sort(key=lambda each: each[0])
    return [
        Found(found.title, found.section, found.url, _snippet(text, words))
        for _, found, text in scored[:MAX_RESULTS]
    ]


@cache
def _sections() -> tuple[tuple[Found, str], ...]:
    """Return each section of each page with its plain text."""
    found = []
    for entry in pages.entries(pages.navigation()):
        title = pages.title(entry.path)
        parts = re.split(r"^#{1,6} (.+)$", pages.markdown(entry.path), flags=re.MULTILINE)
        anchors = {each.title: each.anchor for each in document(entry.path).headings}
        for heading, text in zip(parts[1::2], parts[2::2], strict=True):
            section = MARKUP.sub(r"\1", heading).strip()
            anchor = anchors.get(section, "")
            address = url(entry.path) + (f"#{anchor}" if anchor else "")
            shown = "" if section == title else section
            found.append((Found(title, shown, address, ""), " ".join(_plain(text).split())))
    return tuple(found)


def _plain(text: str) -> str:
    return MARKUP.sub(lambda each: each[1] or " ", text)


def _snippet(text: str, words: Sequence[str]) -> str:
    places = [at for word in words if (at := text.lower().find(word)) >= 0]
    start = max(min(places, default=0) - MAX_SNIPPET // 3, 0)
    cut = text[start : start + MAX_SNIPPET]
    return ("… " if start else "") + cut + (" …" if start + MAX_SNIPPET < len(text) else "")


def _anchored(tokens: list[Token]) -> list[Heading]:
    """Give each heading an id; the same heading twice gets a number, as on GitHub."""
    seen: dict[str, int] = {}
    headings = []
    for at, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        title = "".join(each.content for each in tokens[at + 1].children or ())
        anchor = pages.slug(title)
        seen[anchor] = number = seen.get(anchor, -1) + 1
        anchor += f"-{number}" if number else ""
        token.attrSet("id", anchor)
        if (level := int(token.tag[1])) > 1:
            headings.append(Heading(level, title, anchor))
    return headings


def _addressed(token: Token, path: str) -> None:
    """Turn the relative target of a link or picture into an address of the product."""
    name = {"link_open": "href", "image": "src"}.get(token.type)
    target = str(token.attrGet(name) or "") if name else ""
    if not name or not target or pages.ELSEWHERE.match(target):
        return
    relative, _, anchor = target.partition("#")
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), relative))
    token.attrSet(name, url(there) + (f"#{anchor}" if anchor else ""))
