"""Pages that are open while what they show is deleted say so, and ask for it no more."""

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.operations.models import Operation
from apps.operations.requests import deletion
from apps.operations.studies import services as studies
from tests.browser.conftest import settled
from tests.browser.test_live import hide
from tests.pages import making

# Any script of a page would have asked by then; the clock of the page is moved on.
LONG_MS = 120_000


def open_with_clock(open_page, address):
    """Open a page whose timers are those of `page.clock` from the first one."""
    page = open_page("/workers/")
    page.clock.install()
    page.evaluate("sessionStorage.clock = 'installed'")
    page.goto(address)
    return page


def expect_silence(page, address):
    """Check that scripts ask for nothing of this address, however long the page stays open.

    The page is one of `open_with_clock`: timers that were set before would not be moved on.
    """
    assert page.evaluate("sessionStorage.clock") == "installed"
    asked = []
    page.on("request", lambda request: address in request.url and asked.append(request.url))
    page.clock.run_for(LONG_MS)
    assert asked == []


def test_the_page_of_an_operation(open_page, ana):
    operation = making.operation(ana, "RUNNING", name="the star")
    making.attempt(operation)
    making.curve(operation)
    page = open_with_clock(open_page, operation.get_absolute_url())
    expect(page.get_by_test_id("chart").first).to_be_visible()
    gone = operation.pk
    operation.delete()
    note = page.get_by_role("alert").and_(page.get_by_test_id("gone"))
    page.clock.run_for(LONG_MS)
    expect(note).to_contain_text("This operation was deleted.")
    expect(page).to_have_title("deleted · the star · trainops")
    expect(page.get_by_test_id("operation-name")).to_have_text("the star")
    expect(page.get_by_test_id("submit-again")).to_be_hidden()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("c")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("go to the operations")
    assert not [each for each in asked if "/operations/confirm/" in each], (
        "a key of a hidden button"
    )
    expect_silence(page, gone)


def come_back(page, by):
    """Return to the tab of a page, or to its window, which was in sight all the time."""
    if by == "tab":
        hide(page, is_hidden=True)
        hide(page, is_hidden=False)
    else:
        page.evaluate("dispatchEvent(new Event('focus'))")


@pytest.mark.parametrize("by", ["tab", "window"])
def test_the_page_of_an_operation_that_had_ended(open_page, ana, by):
    operation = making.operation(ana, "COMPLETED", name="the star")
    making.attempt(operation)
    making.curve(operation)
    page = open_with_clock(open_page, operation.get_absolute_url())
    settled(page)
    expect_silence(page, f"{operation.pk}/live")
    asked = []
    page.on("request", lambda request: "/live" in request.url and asked.append(request.url))
    come_back(page, by)
    settled(page)
    page.clock.run_for(LONG_MS)
    assert len(asked) == 1, "once only"
    gone = operation.pk
    deletion.delete(operation_id=gone, actor=ana)
    come_back(page, by)
    expect(page.get_by_test_id("gone")).to_contain_text("This operation was deleted.")
    come_back(page, by)
    expect_silence(page, gone)


def test_the_page_of_an_operation_that_was_resumed_elsewhere(open_page, ana):
    operation = making.operation(ana, "CANCELLED", name="the star")
    page = open_with_clock(open_page, operation.get_absolute_url())
    settled(page)
    expect_silence(page, f"{operation.pk}/live")
    operation.row.update(state="PENDING", finished_at=None)
    come_back(page, "tab")
    expect(page).to_have_title("pending · the star · trainops")


def test_the_page_of_a_study(open_page, ana, in_process):
    study = studies.create(
        kind="training", config={"recipe": "digits"}, owner=ana,
        design={"values": {"seed": [1, 2, 3]}},
    )  # fmt: skip
    page = open_with_clock(open_page, study.get_absolute_url())
    expect(page.get_by_test_id("gone")).to_be_hidden()
    Operation.objects.filter(study=study).delete()
    gone = study.pk
    study.delete()
    page.clock.run_for(LONG_MS)
    expect(page.get_by_test_id("gone")).to_contain_text("This study was deleted.")
    expect_silence(page, gone)


def test_the_page_of_a_study_that_had_ended(open_page, ana, in_process):
    study = studies.create(
        kind="training", config={"recipe": "digits"}, owner=ana, design={"values": {"seed": [1, 2]}}
    )
    members = Operation.objects.filter(study=study)
    members.update(state="CANCELLED", finished_at=timezone.now())
    page = open_with_clock(open_page, study.get_absolute_url())
    settled(page)
    expect_silence(page, study.pk)
    members.filter(pk=members.first().pk).update(state="PENDING", finished_at=None)
    come_back(page, "tab")
    expect(page.get_by_test_id("study-counts")).to_contain_text("Queued 1")
    members.update(state="CANCELLED", finished_at=timezone.now())
    page.goto(study.get_absolute_url())
    settled(page)
    gone = study.pk
    studies.delete(study_id=gone, actor=ana)
    come_back(page, "window")
    expect(page.get_by_test_id("gone")).to_contain_text("This study was deleted.")
    expect_silence(page, gone)


def test_a_row_of_the_list(open_page, ana):
    operation = making.operation(ana, "FAILED", name="the star")
    other = making.operation(ana, "RUNNING")
    page = open_page()
    row = page.locator(f'tr[data-id="{operation.pk}"]')
    operation.delete()
    expect(row.get_by_text("deleted", exact=True)).to_be_visible()
    other.row.update(step=40)
    expect(page.locator(f'tr[data-id="{other.pk}"]')).to_contain_text("80 %")
    expect(row.get_by_text("deleted", exact=True)).to_have_count(1)


@pytest.mark.parametrize(
    "answer",
    [
        {"body": "404 page not found"},
        {"json": {"success": False, "error": {"code": "NOT_FOUND", "message": "Not found."}}},
    ],
)
def test_an_answer_about_something_else_is_no_deletion(open_page, ana, answer):
    operation = making.operation(ana, "RUNNING")
    page = open_page("/workers/")
    away = "**/operations/*/live?*"
    page.route(away, lambda route: route.fulfill(status=404, **answer))
    page.goto(operation.get_absolute_url())
    expect(page.locator("body")).to_contain_class("is-offline")
    expect(page.get_by_test_id("gone")).to_be_hidden()
    page.unroute(away)
    expect(page.locator("body")).not_to_contain_class("is-offline")
