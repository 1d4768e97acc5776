"""The list in Chromium: live without moving, filters in the address, keys, many at once."""

import os
import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.operations.models import Operation
from apps.operations.requests.editing import edit
from tests.api.saved import saved
from tests.browser.axe import violations
from tests.browser.conftest import NARROW, WIDE, settled
from tests.browser.test_studies import photograph
from tests.pages import making


def row(page, operation):
    return page.locator(f'tr[data-id="{operation.pk}"]')


def arrive(page, path):
    expect(page).to_have_url(re.compile(f"{path}$"))
    page.wait_for_load_state()  # the scripts that know the keys are there


def names(page):
    return page.locator("tbody a.name").all_inner_texts()


def test_a_row_changes_where_it_stands(open_page, ana):
    operation = making.operation(ana, "RUNNING")
    page = open_page()
    page.evaluate("window.sameDocument = true")
    row(page, operation).locator("a.name").focus()
    operation.row.update(step=45, place="5 of 5 epochs")
    expect(row(page, operation)).to_contain_text("90 %")
    expect(row(page, operation)).to_contain_text("5 of 5 epochs")
    assert page.evaluate("window.sameDocument")
    expect(row(page, operation).locator("a.name")).to_be_focused()


@pytest.mark.parametrize("path", ["/", "/settings/", "/workers/"])
def test_the_counts_of_the_menu_change_on_every_page(open_page, ana, path):
    operation = making.operation(ana, "RUNNING")
    page = open_page(path)
    active, attention = (
        page.locator(f"[data-count-of={name}]") for name in ("active", "attention")
    )
    expect(active).to_have_text("1 running or queued")
    expect(attention).to_be_hidden()
    operation.row.update(state="FAILED", reason="JOB_ERROR", finished_at=timezone.now())
    expect(attention).to_have_text("1 need attention")
    expect(active).to_be_hidden()


def test_new_ones_wait_behind_a_button(open_page, ana):
    making.operation(ana, "COMPLETED", name="old")
    page = open_page()
    making.operation(ana, name="new one")
    making.operation(ana, name="newer one")
    expect(page.get_by_test_id("new-ones")).to_contain_text("2 new")
    assert names(page) == ["old"]
    page.get_by_test_id("new-ones").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    assert names(page) == ["newer one", "new one", "old"]


def test_a_tab_is_chosen_though_an_answer_replaces_it_while_it_is_pressed(open_page, ana):
    making.operation(ana, "RUNNING", name="night run")
    making.operation(ana, "FAILED", name="night that broke")
    page, held = open_page("/?tab=attention"), []
    settled(page)
    page.route(re.compile(r"q=night"), lambda route: held.append(route), times=1)
    with page.expect_request(re.compile(r"q=night")):
        page.get_by_test_id("search").fill("night")
    page.get_by_test_id("tab-all").hover()
    page.mouse.down()
    held[0].continue_()
    expect(page).to_have_url(re.compile(r"\?tab=attention&q=night$"))
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"/\?q=night$"))
    expect(page.locator("tbody tr")).to_have_count(2)


def test_filters_are_in_the_address_and_survive_going_back(open_page, ana):
    making.operation(ana, "RUNNING", name="runs")
    making.operation(ana, "FAILED", name="broke", tags=["night"])
    page = open_page()
    page.get_by_test_id("tab-attention").click()
    expect(page).to_have_url(re.compile(r"\?tab=attention$"))
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_test_id("search").fill("tag:day")
    expect(page.get_by_test_id("empty")).to_contain_text("Nothing matches")
    expect(page).to_have_url(re.compile(r"tab=attention&q=tag%3Aday$"))
    page.get_by_test_id("search").fill("tag:night")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto("/workers/")
    page.go_back()
    expect(page.get_by_test_id("search")).to_have_value("tag:night")
    settled(page)  # until then a tab is a link with the query as it was
    page.get_by_test_id("search").fill("")
    page.get_by_test_id("tab-all").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_test_id("owner").select_option("me")
    expect(page).to_have_url(re.compile(r"\?owner=me$"))


def test_the_right_rows_stay_live_after_a_filter(open_page, ana):
    operation = making.operation(ana, "RUNNING")
    page = open_page()
    page.get_by_test_id("tab-active").click()
    expect(page).to_have_url(re.compile("tab=active"))
    operation.row.update(step=45)
    expect(row(page, operation)).to_contain_text("90 %")


def test_many_at_once_say_what_is_skipped(open_page, ana):
    running = making.operation(ana, "RUNNING", name="runs")
    waiting = making.operation(ana, name="waits")
    making.operation(ana, "COMPLETED", name="done")
    page = open_page()
    expect(page.get_by_test_id("selection")).to_be_hidden()
    page.get_by_label("Select all on this page").check()
    expect(page.get_by_test_id("selection")).to_contain_text("3 selected")
    page.get_by_test_id("bulk-cancel").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("Cancel 2 of 3 operations?")
    expect(page.get_by_test_id("skipped")).to_contain_text("done: it is completed")
    page.get_by_test_id("confirm-cancel").click()
    expect(page.get_by_test_id("toast")).to_contain_text("Cancelling 2 operations")
    expect(row(page, waiting)).to_contain_text("Cancelled")
    expect(row(page, running)).to_contain_text("Cancelling")
    expect(page.get_by_test_id("selection")).to_be_hidden()


def test_a_dialog_that_is_closed_does_nothing(open_page, ana):
    operation = making.operation(ana)
    page = open_page()
    for close in ("Escape", None):
        page.get_by_test_id("row-cancel").click()
        expect(page.locator("dialog[open]")).to_be_visible()
        if close:
            page.keyboard.press(close)
        else:
            page.get_by_text("Don't cancel").click()
        expect(page.locator("dialog[open]")).to_have_count(0)
    assert Operation.objects.get(pk=operation.pk).state == "PENDING"


def test_refusals_are_toasts(open_page, ana):
    operation = making.operation(ana)
    page = open_page()
    page.get_by_test_id("row-cancel").click()
    expect(page.get_by_test_id("confirm-cancel")).to_be_visible()
    operation.row.update(state="COMPLETED")  # meanwhile
    page.get_by_test_id("confirm-cancel").click()
    expect(page.get_by_test_id("toast")).to_contain_text("only waiting and running operations")


def test_the_keyboard(open_page, ana):
    failed = making.operation(ana, "FAILED", name="broke")
    saved(failed)
    running = making.operation(ana, "RUNNING", name="runs")
    page = open_page()
    press = page.keyboard.press
    press("j")
    expect(row(page, running)).to_have_class(re.compile("current"))
    press("j")
    press("x")
    expect(row(page, failed).locator("input")).to_be_checked()
    press("r")
    expect(page.locator("dialog[open]")).to_contain_text("Resume “broke”?")
    press("Escape")
    press("k")
    press("c")
    expect(page.locator("dialog[open]")).to_contain_text("Cancel “runs”?")
    press("Escape")
    press("?")
    expect(page.locator("dialog[open]")).to_contain_text("always asks")
    press("Escape")
    press("/")
    expect(page.get_by_test_id("search")).to_be_focused()
    page.keyboard.type("n")  # a letter here, not a key
    expect(page.get_by_test_id("search")).to_have_value("n")
    page.get_by_test_id("search").fill("")
    page.locator("h1").click()
    for keys, path in (
        ("gw", "/workers/"), ("gs", "/studies/"), ("gd", "/datasets/"), ("gc", "/checkpoints/"),
        ("/", "/"), ("gr", "/"),
    ):  # fmt: skip
        for key in keys:
            press(key)
        arrive(page, path)
        if keys == "/":
            expect(page.get_by_test_id("search")).to_be_focused()
            page.locator("h1").click()
    press("j")
    expect(row(page, running).locator("a.name")).to_be_focused()
    press("Enter")
    arrive(page, f"/operations/{running.pk}/")
    press("n")
    arrive(page, "/operations/new")


def test_a_viewer_has_no_key_for_what_is_refused(open_page, ana):
    page = open_page(user=making.person("vera", "viewer"))
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("n")
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_contain_text("go to the operations")
    expect(page.locator("dialog[open]")).not_to_contain_text("new operation")
    assert not [address for address in asked if "/operations/new" in address]


def test_nothing_is_asked_while_the_tab_is_hidden(open_page, ana):
    making.operation(ana, "RUNNING")
    page = open_page()
    asked = []
    page.on("request", lambda request: "/live" in request.url and asked.append(request.url))
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true})"
    )
    page.wait_for_timeout(2500)  # one that was under way may still come
    asked.clear()
    page.wait_for_timeout(3000)
    assert not asked
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(500)
    assert asked


def test_an_edit_that_is_refused_keeps_what_was_typed(open_page, ana):
    made = making.operation(ana, "FAILED", name="old")
    page = open_page(f"/operations/{made.pk}/")
    page.get_by_test_id("edit-operation").click()
    page.get_by_test_id("edit-name").fill("mine")
    edit(operation_id=made.pk, actor=ana, changes={"name": "theirs"}, revision=0)
    page.get_by_test_id("edit-save").click()
    expect(page.get_by_test_id("edit-problem")).to_contain_text("its name is now 'theirs'")
    expect(page.get_by_test_id("edit-name")).to_have_value("mine")
    page.reload()
    page.get_by_test_id("edit-operation").click()
    page.get_by_test_id("edit-notes").fill("why it failed")
    page.get_by_test_id("edit-acknowledged").check()
    page.get_by_test_id("edit-save").click()
    expect(page.get_by_test_id("notes")).to_have_text("why it failed")
    made.refresh_from_db()
    assert made.name == "theirs" and made.acknowledged_at


LONG = "a name of a hundred and twenty characters " + "x" * 78
ODD = ("שלום עולם, אימון", "🎉" * 30, LONG)


@pytest.mark.parametrize("width", [360, 768, 1024, 1366, 2560])
def test_the_list_fits_every_width(open_page, ana, width):
    for number, state in enumerate(["RUNNING", "FAILED", "COMPLETED"] * 9):
        name = ODD[number] if number < len(ODD) else f"n{number}"
        making.operation(ana, state, name=name, tags=["night", "x" * 60], metrics={"val_loss": 0.1})
    page = open_page("/?columns=val_loss,epochs", {"width": width, "height": 900})
    expect(page.get_by_test_id("row")).to_have_count(27)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    rows = page.get_by_test_id("row")
    lines = rows.evaluate_all("rows => rows.map(row => row.getBoundingClientRect().height)")
    assert width < 1100 or max(lines) <= 36  # 25 rows in 900 pixels
    widths = rows.locator("a.name").evaluate_all("names => names.map(name => name.clientWidth)")
    assert min(widths) >= 10
    pills = rows.locator(".cell-state").evaluate_all(
        "cells => cells.map(cell => cell.getBoundingClientRect().right)"
    )
    assert max(pills) <= width
    if path := os.environ.get("SHOTS"):
        page.screenshot(path=f"{path}/l{width}.png")
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=f"{path}/d{width}.png")


def test_everything_that_matches_is_acknowledged(open_page, ana):
    for number in range(52):  # on two pages
        making.operation(ana, "FAILED", name=f"n{number}")
    page = open_page("/?tab=attention")
    page.locator("#select-all").check()
    page.get_by_test_id("select-matching").click()
    expect(page.get_by_test_id("selection")).to_contain_text("52 selected")
    page.get_by_test_id("bulk-acknowledge").click()
    expect(page.get_by_test_id("confirm")).to_contain_text("Acknowledge 52 of 52 operations?")
    page.get_by_test_id("confirm-acknowledge").click()
    expect(page.get_by_text("Acknowledged 52 operations.")).to_be_visible()
    assert not Operation.objects.filter(acknowledged_at=None).exists()


def test_several_get_a_tag_and_a_project(open_page, ana):
    several = [making.operation(ana, "FAILED", tags=["old"]) for _ in range(3)]
    page = open_page()
    page.locator("#select-all").check()
    page.get_by_test_id("bulk-edit").click()
    page.get_by_test_id("bulk-tags").fill("night, lungs")
    page.get_by_test_id("bulk-untags").fill("old")
    page.get_by_test_id("bulk-project").fill("trial 7")
    page.get_by_test_id("confirm-edit").click()
    expect(page.get_by_text("Edited 3 operations.")).to_be_visible()
    expect(page.locator("tbody tr .tag").filter(has_text="night")).to_have_count(3)
    for each in several:
        each.refresh_from_db()
        tags = sorted(each.tags.values_list("name", flat=True))
        assert (tags, each.project) == (["lungs", "night"], "trial 7")


def test_a_favourite_has_a_star(open_page, ana):
    operation = making.operation(ana, "COMPLETED")
    page = open_page(operation.get_absolute_url())
    star = page.get_by_test_id("favourite")
    for is_pressed in ("true", "false", "true"):
        star.click()
        expect(star).to_have_attribute("aria-pressed", is_pressed)
    page.goto("/?q=is:favourite")
    expect(page.locator("tbody tr").get_by_role("img", name="favourite")).to_be_visible()


def test_names_of_columns_are_completed(open_page, ana):
    making.operation(ana, "COMPLETED", metrics={"val_loss": 0.5})
    page = open_page()
    page.get_by_test_id("columns").fill("val_l")
    expect(page.locator("#column-names option")).to_have_attribute("value", "val_loss")


def test_a_query_is_completed_and_saved_as_a_view(open_page, ana):
    making.operation(ana, "FAILED", tags=["night"])
    page = open_page()
    page.get_by_test_id("search").fill("tag:ni")
    expect(page.locator("#completions option")).to_have_attribute("value", "tag:night")
    page.get_by_test_id("search").fill("tag:night")
    expect(page).to_have_url(re.compile("tag%3Anight"))
    page.get_by_test_id("save-view").click()
    page.get_by_test_id("view-name").fill("at night")
    page.get_by_test_id("view-save").click()
    expect(page.get_by_test_id("view")).to_have_text("at night")


def test_groups_open_with_their_operations(open_page, ana):
    for name, tags in (("one", ["night"]), ("two", ["night", "x"]), ("three", [])):
        making.operation(ana, "COMPLETED", name=name, tags=tags)
    page = open_page("/")
    page.get_by_test_id("group-by").fill("tag")
    page.get_by_test_id("group-by").press("Enter")
    expect(page.get_by_test_id("group")).to_have_count(3)
    night = page.get_by_test_id("group").filter(has_text="night")
    night.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(night.get_by_test_id("row")).to_have_count(2)
    expect(page.get_by_test_id("row")).to_have_count(2)
    expect(page).to_have_url(re.compile(r"\?group=tag$"))
    for box in night.get_by_role("checkbox").all():
        box.check()
    expect(page.get_by_test_id("bulk-compare")).to_be_enabled()
    expect(page.get_by_test_id("select-matching")).to_be_hidden()
    for viewport in (WIDE, NARROW):
        page.set_viewport_size(viewport)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        photograph(page, f"groups-{viewport['width']}")
    assert not violations(page)
    night.get_by_test_id("group-list").click()
    page.wait_for_url(re.compile(r"\?q=tag%3Anight$"))


def test_enter_stops_nothing_and_more_than_ten_are_confirmed_by_their_number(open_page, ana):
    for number in range(11):
        making.operation(ana, "RUNNING", name=f"run {number}")
    page = open_page()
    page.get_by_label("Select all on this page").check()
    page.get_by_test_id("bulk-cancel").click()
    expect(page.locator("dialog[open] [data-close]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.get_by_test_id("bulk-cancel").click()
    page.get_by_test_id("confirm-cancel").click()
    expect(page.get_by_test_id("typed")).to_be_focused()  # nothing was sent
    assert not Operation.objects.exclude(stop_requested="").exists()
    page.get_by_test_id("typed").fill("11")
    page.get_by_test_id("confirm-cancel").click()
    expect(page.get_by_test_id("toast")).to_contain_text("11 operations")
    assert not Operation.objects.filter(stop_requested="").exists()


def test_boxes_ticked_before_the_scripts_have_arrived_count(open_page, ana):
    for _ in range(2):
        making.operation(ana, "COMPLETED")
    page, held = open_page(), []
    page.route("**/js/selection*.js", lambda route: held.append(route))
    page.goto("/operations/", wait_until="commit")
    boxes = page.locator("table.operations tbody input[type=checkbox]")
    for number in range(2):
        boxes.nth(number).check()
    expect(page.get_by_test_id("bulk-compare")).to_be_hidden()
    held[0].continue_()
    expect(page.get_by_test_id("bulk-compare")).to_be_visible()


# At once: the next answer of the server takes the banner away.
OFFLINE = """() => {
  document.body.classList.add("is-offline");
  const top = (name) => document.querySelector(name).getBoundingClientRect().top;
  const banner = parseFloat(getComputedStyle(document.body, "::before").height);
  return [banner, top(".navbar-brand"), top("h1")];
}"""


def test_while_the_server_is_away_its_banner_covers_nothing(open_page, ana):
    page = open_page()
    for width in (1366, 390):
        page.set_viewport_size({"width": width, "height": 800})
        banner, *tops = page.evaluate(OFFLINE)
        assert min(tops) >= banner > 0
