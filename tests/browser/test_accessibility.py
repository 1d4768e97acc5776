"""Every page as axe judges it, in both themes and at both widths."""

import pytest
from playwright.sync_api import expect

from tests.browser import every_page
from tests.browser.axe import CONTRAST, WIDEST, judged, judged_at_each_width, violations
from tests.browser.conftest import NARROW, settled

IN_TURN_OR_BOTH = [
    [[WIDEST], [NARROW]], pytest.param([[WIDEST, NARROW]], marks=pytest.mark.exhaustive)
]  # fmt: skip


@pytest.fixture
def paths(ana, tmp_path):
    return every_page.addresses(ana, tmp_path)


@pytest.mark.parametrize("viewports", IN_TURN_OR_BOTH, ids=["in turn", "both"])
def test_axe_finds_nothing(open_page, paths, viewports):
    page, found = open_page("/settings/"), {}
    page.emulate_media(reduced_motion="reduce")
    for number, (name, path) in enumerate(paths.items()):
        page.goto(path)
        for viewport in viewports[number % len(viewports)]:
            page.set_viewport_size(viewport)
            settled(page)
            found |= judged(page, f"{name}, {viewport['width']} px")
    assert not found, "\n".join(f"{name}: {said}" for name, said in found.items())


def test_axe_finds_nothing_on_pages_of_errors(open_page):
    page, found = open_page("/settings/"), {}

    def fail(route):
        html = every_page.error_page(route.request.url.rpartition("/")[2])
        route.fulfill(body=html, content_type="text/html")

    page.route("**/fails/*", fail)
    for name in every_page.ERRORS:
        page.goto(f"/fails/{name}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        found |= {f"{name}, {how}": said for how, said in judged_at_each_width(page).items()}
    assert not found, "\n".join(f"{name}: {said}" for name, said in found.items())


def test_axe_finds_nothing_in_dialogs(open_page, paths):
    """A question about an operation, an edit, a question of a form, and one about several rows."""
    page = open_page(paths["running"])
    dialog = page.locator("#dialog")

    def asked(path, *clicks):
        if not page.url.endswith(path):
            page.goto(path)
        for each in clicks:
            page.get_by_test_id(each).first.click()
        expect(dialog).to_be_visible()
        found = violations(page)
        dialog.locator("[data-close]").first.click()
        expect(dialog).to_be_hidden()
        return found

    assert not asked(paths["running"], "kill")
    assert not asked(paths["running"], "edit-operation")
    assert not asked("/workers/", "drain")
    page.goto("/checkpoints/")
    page.locator("input[form=chosen]").first.check()
    assert not asked("/checkpoints/", "delete-chosen")


def test_axe_finds_nothing_on_the_login_page(open_page):
    page = open_page("/settings/")
    page.context.clear_cookies()
    page.goto("/login/")
    assert not judged_at_each_width(page)


def test_axe_finds_nothing_in_the_files(open_page, paths):
    page = open_page(f"{paths['completed']}#files")
    page.get_by_test_id("how-to-load").locator("summary").click()
    expect(page.get_by_test_id("snippet").first).to_be_visible()
    assert not violations(page)


def test_axe_finds_what_is_wrong(open_page, paths):
    page = open_page(paths["list"])
    page.evaluate("document.querySelector('h1').after(document.createElement('button'))")
    assert "button-name" in violations(page)
    assert not violations(page, rules=CONTRAST)
