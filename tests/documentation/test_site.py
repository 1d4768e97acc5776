"""The site of MkDocs: builds without a warning, and requests nothing from other servers."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.waiting import wait_until  # noqa: F401
from trainops.documentation import pages
from trainops.paths import ROOT

pytestmark = pytest.mark.slow
LOADED = re.compile(r'<(?:script|link|img)[^>]*?(?:src|href)="?(https?:[^"> ]+)')


def build(directory, config=ROOT / "mkdocs.yml"):
    command = [sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", directory]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    done = build(directory)
    assert done.returncode == 0, done.stderr
    return directory


def test_every_page_is_built_and_found_by_the_search(site):
    index = json.loads((site / "search/search_index.json").read_text())
    found = {each["location"].partition("#")[0] for each in index["docs"]}
    for path in pages.paths():
        address = path.removesuffix(".md").removesuffix("index")
        address = f"{address.rstrip('/')}/" if address else ""
        assert (site / address / "index.html").exists(), path
        assert address in found, path


def test_a_page_loads_nothing_from_other_servers(site):
    for page in site.rglob("*.html"):
        loaded = [each for each in LOADED.findall(page.read_text()) if "canonical" not in each]
        assert not loaded, (page, loaded)


def test_a_link_to_a_missing_heading_fails_the_build(tmp_path):
    text = (ROOT / "mkdocs.yml").read_text()
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "one.md").write_text("# One\n\n[two](#two)\n")
    hooks, nav = "hooks: [trainops/documentation/mkdocs_hooks.py]", text.index("\nnav:")
    config = tmp_path / "mkdocs.yml"
    config.write_text(text[:nav].replace(hooks, "") + "\nnav: [one.md]\n")
    done = build(tmp_path / "site", config)
    assert done.returncode == 1 and "link '#two'" in done.stderr
