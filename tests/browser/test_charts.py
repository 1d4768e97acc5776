"""Charts in Chromium: zoom, linked cursors, axes, panels, the keyboard."""

import re

import pytest
from django.test import Client
from django.utils import timezone
from playwright.sync_api import expect

from apps.operations.models import ChartChoice, MetricPoint
from apps.workers.models import LoadSample, Worker
from tests.browser.conftest import settled
from tests.browser.test_operation import canvas, path, picture, until_changed
from tests.pages import making


@pytest.fixture
def running(ana):
    operation = making.operation(ana, "RUNNING", name="the star", steps_per_second=2.0)
    making.attempt(operation)
    making.curve(operation)
    return operation


def chart(page, name="loss"):
    return page.locator(f'[data-chart="{name}"]')


def opened(open_page, operation, query="", **how):
    page = open_page(path(operation) + query, **how)
    chart(page).scroll_into_view_if_needed()
    canvas(page, "loss").wait_for()
    return page


def drag(page, name="loss", first=0.4, last=0.6):
    """Select a part of the width of a chart."""
    chart(page, name).scroll_into_view_if_needed()
    box = chart(page, name).locator(".u-over").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + first * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + last * box["width"], y, steps=3)
    page.mouse.up()


def zoom_of(page):
    found = re.search(r"zoom=([-\d.]+):([-\d.]+)", page.url)
    return tuple(map(float, found.groups())) if found else None


def test_a_zoom_survives_new_points_and_a_reload_and_is_reset(open_page, running):
    page = opened(open_page, running)
    expect(page.get_by_test_id("reset-zoom")).to_be_hidden()
    whole = picture(page, "accuracy")
    drag(page)
    expect(page.get_by_test_id("reset-zoom")).to_be_visible()
    low, high = zoom_of(page)
    assert 8 < low < 9.5 and 11.5 < high < 13.5
    until_changed(page, whole, "accuracy")  # all charts show the window
    page.mouse.move(0, 0)
    zoomed = picture(page)
    with page.expect_response("**/live?*"):
        making.curve(running, first=21, last=40)
    expect(canvas(page, "loss")).to_have_attribute("aria-label", re.compile("at step 40"))
    assert picture(page) == zoomed
    page.reload()
    canvas(page, "loss").wait_for()
    assert zoom_of(page) == (low, high)
    before = picture(page)
    page.get_by_test_id("reset-zoom").click()
    until_changed(page, before)
    assert zoom_of(page) is None


def test_a_zoomed_window_has_the_points_that_the_whole_curve_left_out(open_page, running):
    MetricPoint.objects.bulk_create(
        MetricPoint(operation=running, attempt=1, name="long", step=step, value=float(step % 7),
                    at=timezone.now())
        for step in range(1, 9001)
    )  # fmt: skip
    page = opened(open_page, running)
    with page.expect_response(re.compile(r"/points\?.*long")) as asked:
        drag(page, "long", 0.5, 0.6)
    (series,) = (s for s in asked.value.json()["series"] if s["name"] == "long")
    low, high = zoom_of(page)
    inside = [step for step in series["steps"] if low <= step <= high]
    assert inside == list(range(inside[0], inside[-1] + 1)) and len(inside) > 800


def test_a_tooltip_shows_the_values_at_the_cursor_and_all_charts_follow(open_page, running):
    page = opened(open_page, running)
    chart(page).locator(".u-over").hover()
    tooltip = chart(page).get_by_test_id("tooltip")
    expect(tooltip).to_contain_text(re.compile(r"step 1[01]"))
    expect(tooltip).to_contain_text("train_loss 0.")
    expect(tooltip).to_contain_text("val_loss 0.25")  # of its nearest point
    legend = chart(page, "accuracy").locator(".u-legend")
    expect(legend).to_contain_text("0.9")
    expect(chart(page, "accuracy").get_by_test_id("tooltip")).to_be_hidden()
    page.mouse.move(0, 0)
    expect(tooltip).to_be_hidden()


@pytest.mark.usefixtures("ana")
def test_a_single_point_in_time_is_in_the_middle(open_page):
    Worker.objects.create(worker_id="w-1")
    LoadSample.objects.create(worker_id="w-1", cpu_percent=12.5, memory_bytes=2**30)
    page = open_page("/workers/w-1/load")
    over = page.locator(".u-over").first
    over.wait_for()
    over.hover()  # at its middle
    expect(page.get_by_test_id("tooltip").first).to_contain_text("12.5")


def test_axes_are_those_that_the_operation_counts(open_page, running):
    page = opened(open_page, running)
    axis = page.get_by_test_id("x-axis")
    options = "select => [...select.options].filter((o) => !o.hidden).map((o) => o.value)"
    assert axis.evaluate(options) == ["step", "epoch", "elapsed", "time"]
    for value, name in (("epoch", "epoch"), ("elapsed", "elapsed"), ("time", "time (UTC)")):
        before = picture(page)
        axis.select_option(value)
        until_changed(page, before)
        expect(chart(page).locator(".u-legend tr").first).to_contain_text(name)
    MetricPoint.objects.create(
        operation=running, attempt=1, name="episodes", step=20, value=80, at=timezone.now()
    )
    page.wait_for_function("() => !document.querySelector('#x-axis option[value=episodes]').hidden")
    axis.select_option("episodes")
    expect(chart(page).locator(".u-legend tr").first).to_contain_text("episode")


def test_a_chart_of_nan_only_says_so(open_page, running):
    MetricPoint.objects.bulk_create(
        MetricPoint(operation=running, attempt=1, name="broken", step=step, value=None,
                    not_finite="nan", at=timezone.now())
        for step in range(1, 21)
    )  # fmt: skip
    page = opened(open_page, running)
    chart(page, "broken").scroll_into_view_if_needed()
    expect(chart(page, "broken").locator(".chart-empty")).to_contain_text("only NaN or infinity")
    chart(page, "broken").locator("[data-log-scale]").check()
    expect(chart(page, "broken").locator(".chart-empty")).to_contain_text("logarithmic")
    expect(chart(page).locator(".chart-empty")).to_be_hidden()


def test_a_chart_without_points_says_why_and_says_it_to_screen_readers(open_page, running):
    MetricPoint.objects.filter(operation=running, name="epoch").update(attempt=7)  # discarded
    page = opened(open_page, running)
    page.get_by_test_id("x-axis").select_option("epoch")
    why = "No points over this x axis: no epoch was counted."
    expect(chart(page).locator(".chart-empty")).to_have_text(why)
    expect(canvas(page, "loss")).to_have_attribute("aria-label", re.compile(re.escape(why)))
    chart(page).locator(".chart-body").focus()
    page.keyboard.press("ArrowLeft")
    expect(chart(page).locator(".chart-said")).to_have_text(why)


def test_the_page_says_why_there_is_no_chart(open_page, ana):
    operation = making.operation(ana)
    page = open_page(operation.get_absolute_url())
    note = page.get_by_test_id("no-points")
    expect(note).to_have_text("No points yet: the operation is not running.")
    making.attempt(operation)
    lease = timezone.now() + timezone.timedelta(minutes=5)
    operation.row.update(state="RUNNING", attempt=1, worker_id="w", lease_expires_at=lease)
    expect(note).to_have_text("No points yet: the first ones come after the first steps.")
    operation.row.update(state="FAILED", finished_at=timezone.now(), lease_expires_at=None)
    expect(note).to_have_text("No points: nothing was measured.")
    page.goto(f"/compare/?ids={operation.pk},{making.operation(ana, 'COMPLETED').pk}")
    expect(note).to_have_text("No points: nothing was measured.")


def test_the_dashed_note_is_shown_with_dashed_points_only(open_page, running):
    running.row.update(attempt=2)
    making.attempt(running, 2, from_step=20)
    page = opened(open_page, running)
    making.curve(running, attempt=2, first=21, last=30)
    expect(canvas(page, "loss")).to_have_attribute("aria-label", re.compile("at step 30"))
    expect(page.locator("#dashed-note")).to_be_hidden()


def test_arrow_keys_move_the_cursor_and_say_the_values(open_page, running):
    page = opened(open_page, running)
    body = chart(page).locator(".chart-body")
    body.focus()
    page.keyboard.press("ArrowLeft")
    said = chart(page).locator(".chart-said")
    expect(said).to_have_text("step 20, train_loss 0.1, val_loss 0.125")
    page.keyboard.press("Shift+ArrowLeft")
    expect(said).to_contain_text("step 10, train_loss 0.2")
    expect(chart(page).get_by_test_id("tooltip")).to_be_visible()
    page.keyboard.press("Home")
    expect(said).to_contain_text("step 1, train_loss 2")
    page.keyboard.press("+")
    expect(page.get_by_test_id("reset-zoom")).to_be_visible()
    page.keyboard.press("0")
    expect(page.get_by_test_id("reset-zoom")).to_be_hidden()
    chart(page).locator(".u-legend th", has_text="train_loss").focus()
    before = picture(page)
    page.keyboard.press("Enter")
    until_changed(page, before)


def pick(page, name, label):
    """Choose an entry of a chart's menu."""
    chart(page, name).get_by_test_id("chart-menu").locator("summary").click()
    chart(page, name).get_by_text(label, exact=True).click()


def order_of(page):
    shown = "cards => cards.filter((card) => !card.hidden).map((card) => card.dataset.chart)"
    return page.locator("#chart-grid > .chart").evaluate_all(shown)


def test_charts_are_hidden_pinned_and_moved_and_stay_so(open_page, running):
    MetricPoint.objects.bulk_create(
        MetricPoint(operation=running, attempt=1, name=name, step=step, value=step,
                    at=timezone.now())
        for name in ("updates", "extra") for step in (1, 2)
    )  # fmt: skip
    page = opened(open_page, running)
    assert order_of(page) == ["loss", "accuracy", "extra"]
    expect(page.get_by_test_id("counter-charts").locator('[data-chart="updates"]')).to_be_hidden()
    pick(page, "accuracy", "Hide")
    expect(chart(page, "accuracy")).to_be_hidden()
    pick(page, "extra", "Pin to the top")
    assert order_of(page) == ["extra", "loss"]
    page.reload()
    canvas(page, "loss").wait_for()
    assert order_of(page) == ["extra", "loss"]
    page.get_by_test_id("show-hidden").click()
    assert order_of(page) == ["extra", "loss", "accuracy"]
    pick(page, "accuracy", "Move forward")
    assert order_of(page) == ["extra", "accuracy", "loss"]
    page.get_by_test_id("chart-search").fill("upd")
    expect(chart(page, "updates")).to_be_visible()
    assert order_of(page) == []
    page.get_by_test_id("chart-search").fill("")
    page.reload()
    canvas(page, "loss").wait_for()
    assert order_of(page) == ["extra", "accuracy", "loss"]
    other = opened(open_page, running)  # another browser
    settled(other)
    assert order_of(other) == ["extra", "accuracy", "loss"]


def without_answer(route):
    route.abort()


def unavailable(route):
    route.fulfill(status=503, content_type="text/html", body="Service unavailable")


def signed_out(route):
    route.fulfill(status=403, json={"level": "error", "message": "This form has expired."})


@pytest.mark.parametrize("fails", [without_answer, unavailable, signed_out])
def test_a_choice_that_the_server_did_not_store_is_sent_with_the_next_page(
    open_page, running, ana, fails
):
    page = opened(open_page, running)
    settled(page)
    hide_in_vain(page, "accuracy", fails)
    with page.expect_response(is_stored) as sent:
        page.reload()
    assert sent.value.json()["choice"]["hidden"] == ["accuracy"]
    other = opened(open_page, running)
    settled(other)
    assert order_of(other) == ["loss"]


def hide_in_vain(page, name, fails):
    """Hide a chart; the server does not store this choice, but those that follow."""
    page.route("**/charts/choice", fails, times=1)
    with page.expect_request("**/charts/choice"):
        pick(page, name, "Hide")


def is_stored(response):
    return response.url.endswith("/charts/choice") and response.ok


def test_a_choice_made_before_the_server_answered_is_a_change_of_that_of_the_server(
    open_page, running, ana
):
    page = open_page("about:blank")
    ChartChoice.objects.create(user=ana, pinned=["accuracy"], hidden=["other"])
    page.route("**/charts/choice?*", without_answer)
    page.goto(f"/operations/{running.pk}/")
    canvas(page, "loss").wait_for()
    settled(page)
    with page.expect_response(is_stored):
        pick(page, "loss", "Hide")
    expect(page.locator("#chart-grid .pinned")).to_have_attribute("data-chart", "accuracy")
    chosen = ChartChoice.objects.get()
    assert chosen.pinned == ["accuracy"] and chosen.hidden == ["other", "loss"]


def test_a_choice_that_cannot_be_stored_is_dropped(open_page, running, ana):
    page = opened(open_page, running)
    settled(page)
    refusal = {"errors": {"hide": ["got 1001 charts; allowed: up to 1000"]}}
    page.route("**/charts/choice", lambda route: route.fulfill(status=400, json=refusal))
    pick(page, "accuracy", "Hide")
    expect(chart(page, "accuracy")).to_be_visible()
    page.unroute("**/charts/choice")
    with page.expect_response("**/charts/choice?*"):
        page.reload()
    settled(page)
    assert order_of(page) == ["loss", "accuracy"] and not ChartChoice.objects.exists()


def test_a_choice_is_not_that_of_the_next_user_of_the_browser(open_page, running, ana):
    page = opened(open_page, running)
    settled(page)
    hide_in_vain(page, "accuracy", unavailable)
    client = Client()
    client.force_login(making.person("ben", "operator"))
    cookie = {"name": "sessionid", "value": client.cookies["sessionid"].value}
    mine = page.context.cookies()
    page.context.clear_cookies(name="sessionid")
    page.context.add_cookies([cookie | {"url": page.evaluate("location.origin")}])
    page.goto(f"/operations/{running.pk}/")
    canvas(page, "loss").wait_for()
    settled(page)
    assert order_of(page) == ["loss", "accuracy"] and not ChartChoice.objects.exists()
    with page.expect_response(is_stored):
        pick(page, "loss", "Hide")
    page.context.clear_cookies(name="sessionid")
    page.context.add_cookies([each for each in mine if each["name"] == "sessionid"])
    with page.expect_response(is_stored):
        page.reload()
    assert dict(ChartChoice.objects.values_list("user__username", "hidden")) == {
        "ana": ["accuracy"],
        "ben": ["loss"],
    }
    keys = page.evaluate("Object.keys(localStorage)")
    stored = [key for key in keys if key.startswith("chart-panels")]
    assert stored == [f"chart-panels.{ana.pk}"], "nothing is left of another user"


def test_a_choice_that_an_earlier_version_kept_in_the_browser_is_stored_once(
    open_page, running, ana
):
    page = opened(open_page, running)
    settled(page)
    page.evaluate("""localStorage.setItem("chart-panels", JSON.stringify(
        {hidden: ["accuracy"], pinned: [], order: ["accuracy", "loss"]}))""")
    with page.expect_response(is_stored):
        page.reload()
    settled(page)
    assert order_of(page) == ["loss"]
    assert ChartChoice.objects.get().order == ["accuracy", "loss"]
    assert page.evaluate("localStorage.getItem('chart-panels')") is None


def test_a_chart_is_saved_as_png_and_csv_and_shown_as_a_table_and_on_a_full_screen(
    open_page, running
):
    page = opened(open_page, running)
    with page.expect_download() as download:
        pick(page, "loss", "Save as PNG")
    assert download.value.suggested_filename == "Loss.png"
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as download:
        pick(page, "loss", "All points as CSV")
    lines = download.value.path().read_text().splitlines()
    assert lines[0] == "name,step,attempt,value,at,retired_by"
    assert len(lines) == 1 + 20 + 2
    pick(page, "loss", "Show as table")
    table = page.locator("#chart-table")
    expect(table.locator("thead")).to_have_text("steptrain_lossval_loss")
    expect(table.locator("tbody tr")).to_have_count(20)
    expect(table.locator("tbody tr").last).to_have_text("200.10.125")
    table.get_by_text("Close").click()
    pick(page, "loss", "Full screen")
    page.wait_for_function("() => document.fullscreenElement?.dataset.chart === 'loss'")
    expect(canvas(page, "loss")).to_have_js_property(
        "clientHeight", page.evaluate("innerHeight - 150")
    )
    pick(page, "loss", "Leave full screen")
    page.wait_for_function("() => !document.fullscreenElement")
    expect(canvas(page, "loss")).to_have_js_property("clientHeight", 260)
