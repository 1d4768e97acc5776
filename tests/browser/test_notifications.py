"""Notification rules and browser notifications in Chromium."""

import pytest
from playwright.sync_api import expect

from apps.notifications.models import Rule
from tests.pages import making

RECORD = """() => {
  window.shown = [];
  const Real = Notification;
  window.Notification = class extends Real {
    constructor(title, options) { super(title, options); window.shown.push(title); }
  };
}"""


def test_a_rule_is_created_and_tested(open_page):
    page = open_page("/notifications/")
    page.get_by_label("Name").fill("chat")
    page.get_by_label("Target").fill("https://hooks.example.org/a")
    page.get_by_test_id("save-rule").click()
    expect(page.get_by_test_id("rule-secret")).to_be_visible()  # the rule is stored
    rule = Rule.objects.get()
    expect(page.get_by_test_id("rule-secret")).to_have_value(rule.secret)
    assert (rule.tag, rule.project, rule.reason) == ("", "", "")
    page.get_by_test_id("test").click()
    expect(page.get_by_test_id("delivery")).to_contain_text("TEST")


@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_fits_its_width(open_page, width):
    page = open_page("/notifications/", {"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_end_of_an_open_operation_is_shown_by_the_browser_and_in_the_tab(open_page, ana):
    operation = making.operation(ana, "RUNNING", name="the star")
    page = open_page("/notifications/")
    page.context.grant_permissions(["notifications"])
    page.get_by_test_id("browser-notifications").click()
    expect(page.get_by_test_id("browser-notifications")).to_have_text("Turn off")
    page.goto(page.url.replace("/notifications/", f"/operations/{operation.pk}/"))
    page.evaluate(RECORD)
    expect(page).to_have_title("40 % · the star · trainops")
    assert page.locator("link[rel=icon]").get_attribute("href").startswith("data:image/svg+xml")
    operation.row.update(state="COMPLETED", lease_expires_at=None)
    expect(page).to_have_title("completed · the star · trainops")
    assert page.evaluate("window.shown") == ["COMPLETED: the star · trainops"]
