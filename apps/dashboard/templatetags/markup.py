"""Markup that several pages have, and a tag that wraps long lines of templates."""

import re

from django import template
from django.template.base import NodeList, Parser, TextNode, Token
from django.utils.safestring import SafeString

register = template.Library()
LINE_BREAK = re.compile(r"\n *")


@register.inclusion_tag("dashboard/parts/card_header.html")
def card_header(title: str, note: str = "", id: str = "") -> dict[str, str]:
    return {"title": title, "note": note, "id": id}


@register.inclusion_tag("dashboard/parts/table_head.html")
def table_head(*names: str, hidden: str = "") -> dict[str, object]:
    """Render the header row of a table; `hidden` names a last column for screen readers only."""
    return {"names": names, "hidden": hidden}


class JoinLinesNode(template.Node):
    def __init__(self, nodelist: NodeList) -> None:
        self.nodelist = nodelist

    def render(self, context: template.Context) -> SafeString:
        return self.nodelist.render(context)


@register.tag
def joinlines(parser: Parser, token: Token) -> JoinLinesNode:
    """Join the lines of the template text inside with a separator, by default with nothing.

    For long attributes, and for text in which additional white space would be visible. Line breaks
    in values stay. The attributes of a tag inside stay on one line: they would be joined, too.
    """
    separator = "".join(token.split_contents()[1:]).strip("\"'")
    nodelist = parser.parse(("endjoinlines",))
    parser.delete_first_token()
    texts = [node for node in nodelist.get_nodes_by_type(TextNode) if isinstance(node, TextNode)]
    for text in texts:
        if text is nodelist[0]:
            text.s = text.s.lstrip()
        if text is nodelist[-1]:
            text.s = text.s.rstrip()
        text.s = LINE_BREAK.sub(separator, text.s)
    return JoinLinesNode(nodelist)
