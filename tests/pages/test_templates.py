"""Templates are laid out so that a change of one tag is a change of one line."""

import re
from pathlib import Path

from django.template import Context, Template

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("templates", "trainops/kinds", "examples")
MAX_COLUMNS = 110
BLOCK_LEVEL = re.compile(
    r"<(article|aside|body|caption|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|form"
    r"|h[1-6]|head|header|html|legend|li|main|nav|ol|option|p|pre|section|summary|table|tbody|td"
    r"|template|tfoot|th|thead|tr|ul)\b"
)


def _lines():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.html")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield f"{path.relative_to(ROOT)}:{number}", line


def test_lines_have_at_most_110_columns():
    found = [f"{place}: {len(line)} columns" for place, line in _lines() if len(line) > MAX_COLUMNS]
    assert not found, "\n".join(found)


def test_a_line_opens_at_most_one_block_level_element():
    found = [f"{place}: {line}" for place, line in _lines() if len(BLOCK_LEVEL.findall(line)) > 1]
    assert not found, "\n".join(found)


def _render(source, **values):
    return Template("{% load markup %}" + source).render(Context(values))


def test_joinlines_removes_line_breaks_of_the_template_and_keeps_those_of_values():
    source = """{% joinlines %}
      {{ text }}
      {% if text %}
        , and more
      {% endif %}
      .
    {% endjoinlines %}"""
    assert _render(source, text="two\n lines") == "two\n lines, and more."


def test_joinlines_joins_with_the_separator_given():
    source = """{% joinlines " " %}
      one
      two
    {% endjoinlines %}"""
    assert _render(source) == "one two"


def test_table_head_names_a_column_for_screen_readers_only():
    html = _render('{% table_head "Name" "Size" hidden="Actions" %}')
    assert re.findall(r'<th scope="col">(.*)</th>', html) == [
        "Name", "Size", '<span class="visually-hidden">Actions</span>',
    ]  # fmt: skip
