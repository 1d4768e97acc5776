"""The documentation as the product serves it."""

import pytest

from trainops.documentation import pages, rendering

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", ["index.md", "tutorial.md", "adr/index.md", "architecture.md"])
def test_a_page_is_shown_with_its_place_in_the_menu(page, path):
    html = page.get(rendering.url(path)).content.decode()
    assert f"<title>{pages.title(path)}" in html
    assert f'<a href="{rendering.url(path)}" aria-current="page">' in " ".join(html.split())


def test_every_page_has_an_address(page):
    for path in pages.paths():
        assert page.get(rendering.url(path)).status_code == 200, path


def test_pictures_are_shown_and_small():
    folder = pages.SOURCES / "docs"
    texts = "".join(
        each.read_text() for each in [*folder.glob("*.md"), folder.parent / "README.md"]
    )
    pictures = list(folder.glob("*.png"))
    assert len(pictures) >= 4
    for each in pictures:
        assert f"{each.name})" in texts and each.stat().st_size < 120_000, each


def test_pictures_and_the_openapi_document_are_served(page):
    for name, kind in (("screenshot.png", "image/png"), ("openapi.yaml", "yaml")):
        answer = page.get(f"/docs/{name}")
        assert kind in answer["Content-Type"]
        assert len(answer.getvalue()) > 1000


@pytest.mark.parametrize(
    "address", ["nothing/", "configuration.md", "adr/nothing/", "nothing.png", "index/"]
)
def test_other_addresses_are_not_found(page, address):
    assert page.get(f"/docs/{address}").status_code == 404


def test_only_people_who_are_signed_in_read_it(client, db):
    for address in ("/docs/", "/docs/tutorial/", "/docs/openapi.yaml"):
        assert client.get(address).url.startswith("/login/")


def test_a_search_shows_sections_and_escapes_the_query(page):
    assert b"Checkpoints and retention" in page.get("/docs/?q=pinned checkpoints").content
    html = page.get("/docs/?q=<script>xyzzy").content.decode()
    assert "No section contains" in html and "<script>xyzzy" not in html


def test_every_page_of_the_product_links_to_it(page):
    assert b'href="/docs/"' in page.get("/").content
