"""Tables: the fields of a config that differ, and cards on a phone."""

import pytest
from playwright.sync_api import expect

from apps.workers.models import Worker
from tests.browser.conftest import NARROW
from tests.pages import making


def test_only_fields_that_differ_are_left(open_page, ana):
    page = open_page(f"/operations/{making.operation(ana).pk}/#config")
    rows = page.get_by_test_id("config-fields").locator("tbody tr")
    expect(rows.filter(has_text="momentum")).to_be_visible()
    page.get_by_test_id("only-changed").check()
    expect(rows.filter(has_text="momentum")).to_be_hidden()
    expect(rows.filter(has_text="epochs").first).to_be_visible()


def test_the_config_is_copied_as_the_file_for_run(open_page, ana):
    page = open_page(f"/operations/{making.operation(ana, name='copied').pk}/#config")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as YAML").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("kind: training\nname: copied")


@pytest.mark.parametrize("path", ["/settings/", "/workers/"])
def test_rows_are_cards_on_a_phone(open_page, path):
    Worker.objects.create(worker_id="worker-1", kinds=["training"], slots=2)
    page = open_page(path, NARROW)
    scroll = page.locator(".table-scroll")
    assert scroll.evaluate("each => each.scrollWidth <= each.clientWidth")
    if path == "/workers/":
        expect(page.locator("[data-label=Heartbeat]")).to_be_visible()
