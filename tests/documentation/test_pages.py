"""The pages: each is in the navigation, its links lead to pages, generated ones name everything."""

import re
import subprocess
import sys

import pytest
import yaml

from tests.cli.test_docs import commands, fields
from trainops.documentation import pages, python_api, rendering
from trainops.documentation.kinds import type_of
from trainops.kind import KINDS
from trainops.lazy import load
from trainops.paths import ROOT

pytestmark = pytest.mark.slow

ENTRIES = list(pages.entries(pages.navigation()))
ATTRIBUTE = re.compile(r'(?:href|src)="([^"]+)"')


def test_the_navigation_has_every_page_once():
    assert sorted(each.path for each in ENTRIES) == sorted(pages.paths())


@pytest.mark.parametrize("path", sorted(pages.paths()))
def test_links_of_the_product_lead_to_pages_and_headings(path):
    for target in ATTRIBUTE.findall(rendering.document(path).html):
        if target.startswith("http"):
            continue
        address, _, anchor = target.removeprefix(rendering.PREFIX).partition("#")
        if pages.is_file(address):
            continue
        there = path if target.startswith("#") else rendering.path_of(address)
        assert not anchor or f'id="{anchor}"' in rendering.document(there).html, target


@pytest.mark.parametrize("name", KINDS)
def test_the_page_of_a_kind_has_every_field(name):
    text = pages.markdown(f"reference/kinds/{name}.md")
    for path, _ in fields(load(KINDS[name].config)):
        assert f"| `{path}` |" in text or f"| `{path.rpartition('.')[0]}` |" in text, path


def test_types_are_shown_with_their_bounds():
    assert type_of({"type": "integer", "minimum": 0, "exclusiveMaximum": 9}, {}) == (
        "integer ≥ 0, < 9"
    )
    choices = {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}
    assert type_of(choices, {}) == "`a`, `b` or null"
    assert type_of({"items": {"$ref": "#/$defs/One"}}, {"One": {"const": 1}}) == "list of `1`"


def test_the_page_of_commands_has_every_command():
    text = pages.markdown("reference/commands.md")
    for name in commands() | {"up"}:
        assert re.search(rf"^## {name}\b", text, re.MULTILINE), name


def test_the_page_of_requests_has_every_address():
    text = pages.markdown("reference/http.md")
    for path in yaml.safe_load((ROOT / "docs/openapi.yaml").read_text())["paths"]:
        assert re.search(rf"^### [A-Z]+ {re.escape(path)}$", text, re.MULTILINE), path


def test_the_page_of_python_has_every_public_name_that_is_defined():
    from trainops import runtime

    text = python_api.page()
    for name in runtime.__all__:
        assert f"\n### {name}\n" in text or name == "Outcome", name  # a union, without docstring


def test_no_page_needs_torch():
    code = (
        "import sys; from trainops.documentation import pages;"
        "[pages.markdown(each) for each in pages.paths()]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_search_shows_no_rules_of_tables():
    texts = [text for _, text in rendering._sections()]
    assert any("allowed" in text for text in texts)
    assert not [text for text in texts if " --- " in text]


def test_a_search_finds_sections_with_all_words():
    found = rendering.search("pinned checkpoints deleted")
    assert found[0].url.startswith(rendering.PREFIX)
    assert any("configuration" in each.url for each in found)
    assert rendering.search("checkpoints wxyzzy") == []
    assert rendering.search("  ") == []


def test_raw_html_is_shown_as_text(monkeypatch):
    monkeypatch.setattr(pages, "markdown", lambda path: "# One\n\n<script>x</script>\n")
    rendering.document.cache_clear()
    assert "<script>" not in rendering.document("index.md").html
    rendering.document.cache_clear()
