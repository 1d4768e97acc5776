"""The page of one operation in Chromium: live, with curves that can be looked at from all sides."""

import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.checkpoints.models import Checkpoint
from apps.operations.models import LogChunk, MetricPoint, Operation
from tests.api.saved import saved
from tests.browser.conftest import settled
from tests.operations import rows
from tests.pages import making

# How many pixels of a canvas are drawn in a colour that is not grey (the axes are).
COLOURED = """canvas => {
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let coloured = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b, a] = data.slice(i, i + 4);
    if (a > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 60) coloured++;
  }
  return coloured;
}"""
PICTURE = "canvas => canvas.toDataURL()"


@pytest.fixture
def running(ana):
    operation = making.operation(ana, "RUNNING", name="the star", steps_per_second=2.0)
    making.attempt(operation)
    making.curve(operation)
    making.log(operation, "first line\n<script>window.hacked = 1</script>\n")
    return operation


def path(operation):
    return f"/operations/{operation.pk}/"


def canvas(page, chart):
    return page.locator(f'[data-chart="{chart}"] canvas')


def picture(page, chart="loss"):
    return canvas(page, chart).evaluate(PICTURE)


def until_changed(page, before, chart="loss"):
    page.wait_for_function(
        """([chart, before]) =>
          document.querySelector(`[data-chart="${chart}"] canvas`)?.toDataURL() !== before""",
        arg=[chart, before],
    )


def test_curves_have_pixels(open_page, running):
    page = open_page(path(running))
    for chart in ("loss", "accuracy"):
        canvas(page, chart).scroll_into_view_if_needed()
        assert canvas(page, chart).evaluate(COLOURED) > 150
    label = canvas(page, "loss").get_attribute("aria-label")
    assert "train_loss: 0.1 at step 20" in label and "val_loss: 0.125 at step 20" in label


def test_new_points_place_and_log_arrive_by_themselves(open_page, running):
    page = open_page(path(running))
    page.evaluate("window.sameDocument = true")
    canvas(page, "loss").wait_for()
    before = picture(page)
    running.row.update(step=40, place="4 of 5 epochs")
    making.curve(running, first=21, last=40)
    making.log(running, "second line\n")
    expect(page.get_by_test_id("place")).to_contain_text("4 of 5 epochs")
    expect(page.get_by_test_id("percent")).to_have_text("80 %")
    expect(page.get_by_test_id("log")).to_contain_text("second line")
    until_changed(page, before)
    assert page.evaluate("window.sameDocument") and not page.evaluate("window.hacked")


def test_what_a_resume_took_back_is_dashed(open_page, running):
    page = open_page(path(running))
    canvas(page, "loss").wait_for()
    before = picture(page)
    running.row.update(attempt=2)
    making.attempt(running, 2, from_step=10)
    rows.retire(running, by=2, after_step=10)
    until_changed(page, before)
    older = page.locator('[data-chart="loss"] .u-series', has_text="train_loss (older)")
    expect(older).to_have_count(1)
    expect(older).to_be_hidden()  # drawn, but no line of the legend
    expect(page.locator("#dashed-note")).to_be_visible()


def test_axis_log_scale_and_smoothing_are_in_the_address(open_page, running):
    page = open_page(path(running))
    canvas(page, "loss").wait_for()
    for change, in_address in (
        (lambda: page.get_by_test_id("x-axis").select_option("epoch"), "x=epoch"),
        (lambda: page.get_by_test_id("x-axis").select_option("time"), "x=time"),
        (lambda: page.locator('[data-chart="loss"] [data-log-scale]').check(), "log=loss"),
        (lambda: page.get_by_test_id("smoothing").fill("0.8"), "smooth=0.8"),
    ):
        before = picture(page)
        change()
        until_changed(page, before)
        expect(page).to_have_url(re.compile(re.escape(in_address)))
    page.reload()
    expect(page.get_by_test_id("x-axis")).to_have_value("time")
    expect(page.locator('[data-chart="loss"] [data-log-scale]')).to_be_checked()


def test_charts_are_made_when_they_are_seen(open_page, running):
    names = [f"extra_{number}" for number in range(12)]
    MetricPoint.objects.bulk_create(
        MetricPoint(operation=running, attempt=1, name=name, step=step, value=step * 0.5,
                    at=timezone.now())
        for name in names for step in range(5)
    )  # fmt: skip
    page = open_page(path(running))
    canvas(page, "loss").wait_for()
    assert page.get_by_test_id("chart").count() == 14
    assert page.locator("#charts canvas").count() < 14
    page.locator('[data-chart="extra_9"]').scroll_into_view_if_needed()
    expect(canvas(page, "extra_9")).to_be_visible()


def test_the_speed_has_a_group_of_charts_that_is_closed(open_page, running):
    names = ("system/samples_per_second", "system/data_wait_share")
    page = open_page(path(running))
    canvas(page, "loss").wait_for()
    group = page.get_by_test_id("system-charts")
    expect(group).to_be_hidden()
    MetricPoint.objects.bulk_create(
        MetricPoint(operation=running, attempt=1, name=name, step=step, value=step * 0.5,
                    at=timezone.now())
        for name in names for step in range(5)
    )  # fmt: skip
    expect(group).to_be_visible()
    assert page.locator("#chart-grid [data-testid=chart]").count() == 2
    expect(group.locator("canvas").first).to_be_hidden()
    group.locator("> summary").click()
    for name, title in zip(
        names, ("Samples per second", "Time spent waiting for data"), strict=True
    ):
        expect(canvas(page, name)).to_be_visible()
        expect(group.locator(f'[data-chart="{name}"] .card-title')).to_have_text(title)
    assert canvas(page, names[0]).evaluate(COLOURED) > 150


def test_the_theme_follows_is_switched_and_remembered(open_page, running):
    page = open_page(path(running), scheme="dark")
    html = page.locator("html")
    expect(html).to_have_attribute("data-bs-theme", "dark")
    canvas(page, "loss").wait_for()
    dark = picture(page)
    page.emulate_media(color_scheme="light")
    expect(html).to_have_attribute("data-bs-theme", "light")
    until_changed(page, dark)
    page.get_by_test_id("theme").click()  # light, whatever the system says
    page.get_by_test_id("theme").click()
    expect(html).to_have_attribute("data-bs-theme", "dark")
    page.reload()
    expect(html).to_have_attribute("data-bs-theme", "dark")
    expect(page.get_by_test_id("theme")).to_have_text("Theme: dark")


def test_cancel_asks_then_says_what_happens(open_page, running):
    page = open_page(path(running))
    page.get_by_test_id("cancel").click()
    expect(page.get_by_test_id("confirm-text")).to_contain_text("will save a checkpoint")
    page.get_by_test_id("confirm-cancel").click()
    expect(page.get_by_test_id("toast")).to_contain_text("saving a checkpoint first")
    expect(page.get_by_test_id("explanation")).to_contain_text("ana requested a cancel")
    expect(page.get_by_test_id("cancel")).to_have_count(0)
    expect(page.get_by_test_id("kill")).to_be_visible()


def test_a_settled_page_rests_and_wakes_with_a_resume(open_page, ana):
    operation = making.operation(ana, "CANCELLED", name="stopped")
    older = saved(operation, step=5, epoch=0)
    saved(operation, step=15)
    page = open_page(path(operation))
    asked = []
    page.wait_for_timeout(1000)
    page.on("request", lambda request: "/live" in request.url and asked.append(request.url))
    page.wait_for_timeout(3500)
    assert not asked
    page.get_by_test_id("resume").click()
    page.locator(f'input[value="{older.pk}"]').check()
    page.get_by_test_id("confirm-resume").click()
    expect(page.get_by_test_id("toast")).to_contain_text("Training resumed from epoch 0")
    expect(page.get_by_test_id("state")).to_have_text("Resuming")
    assert Operation.objects.get().resume_from == older.pk
    operation.row.update(state="RUNNING", lease_expires_at=timezone.now(), place="1 of 5 epochs")
    expect(page.get_by_test_id("place")).to_contain_text("1 of 5 epochs")


def test_checkpoints_are_pinned_verified_and_deleted(open_page, ana):
    operation = making.operation(ana, "CANCELLED")
    saved(operation)
    page = open_page(path(operation) + "#checkpoints")
    line = page.get_by_test_id("checkpoint")
    line.get_by_test_id("pin").click()
    expect(line).to_contain_text("pinned")
    line.get_by_test_id("verify").click()
    expect(page.get_by_test_id("toast").last).to_contain_text("is undamaged")
    line.get_by_test_id("delete-checkpoint").click()
    expect(page.get_by_test_id("confirm-text")).to_contain_text("it is the only one")
    page.get_by_test_id("confirm-delete-checkpoint").click()
    expect(page.locator("#pane-checkpoints")).to_contain_text("None was kept")
    assert not Checkpoint.objects.exists()


def test_what_is_done_while_the_page_asks_is_seen_all_the_same(open_page, ana):
    """A settled page stops asking: an answer from before an action must not be its last."""
    operation = making.operation(ana, "CANCELLED")
    saved(operation)
    page = open_page("/")
    held = []

    def hold_the_first(route):
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))  # answered now, delivered after the action

    page.route("**/live?*", hold_the_first)
    page.goto(path(operation) + "#checkpoints")
    while not held:  # the page asks once its scripts were loaded
        page.wait_for_timeout(20)
    page.get_by_test_id("pin").click()
    expect(page.get_by_test_id("toast")).to_be_visible()
    route, answer = held[0]
    route.fulfill(response=answer)
    expect(page.get_by_test_id("checkpoint")).to_contain_text("pinned")


def cut_off(route):
    """Let the server do what it was asked, and lose its answer on the way."""
    route.fetch(max_redirects=0)
    route.abort()


def said_first(route):
    """Let the page look what happened once it has said that it does not know."""
    toast = route.request.frame.page.get_by_test_id("toast").last
    expect(toast).to_contain_text("may or may not have been carried out")
    route.continue_()


def test_after_an_answer_that_was_cut_off_the_page_looks_what_happened(open_page, ana):
    operation = making.operation(ana, "CANCELLED")
    saved(operation)
    page = open_page(path(operation))
    page.route("**/operations/act/*", cut_off)
    page.route(page.url, said_first, times=1)
    page.get_by_test_id("resume").click()
    page.get_by_test_id("confirm-resume").click()
    expect(page.get_by_test_id("toast").last).to_contain_text("shows the current state")
    assert Operation.objects.get(pk=operation.pk).state == "RESUMING"
    expect(page.get_by_test_id("state")).to_have_text("Resuming")


def test_after_a_deletion_whose_answer_was_cut_off_the_list_is_shown(open_page, ana):
    operation = making.operation(ana, "CANCELLED")
    page = open_page(path(operation))
    page.route("**/operations/act/*", cut_off)
    page.get_by_test_id("delete").click()
    page.get_by_test_id("confirm-delete").click()
    page.wait_for_url("**/")
    expect(page.get_by_test_id("toast").last).to_contain_text("shows the current state")


def test_unrecorded_checkpoints_are_recovered_with_a_button(open_page, ana):
    operation = making.operation(ana, "CANCELLED")
    saved(operation, step=10)
    newer = saved(operation, step=20)
    Checkpoint.objects.filter(pk=newer.pk).delete()
    page = open_page(f"{path(operation)}#checkpoints")
    expect(page.get_by_test_id("unrecorded")).to_contain_text("1 newer checkpoint, up to step 20")
    page.get_by_test_id("recover").click()
    expect(page.get_by_test_id("toast")).to_contain_text("Recovered 1 checkpoint")
    expect(page.get_by_test_id("checkpoint")).to_have_count(2)
    expect(page.get_by_test_id("unrecorded")).to_have_count(0)


def test_a_deletion_leads_back_to_the_list(open_page, ana):
    operation = making.operation(ana, "COMPLETED", name="old")
    page = open_page(path(operation))
    page.get_by_test_id("delete").click()
    page.get_by_test_id("confirm-delete").click()
    expect(page.get_by_test_id("toast")).to_contain_text("Deleted “old”")
    expect(page.get_by_test_id("empty")).to_be_visible()


def test_tabs_are_in_the_address(open_page, running):
    page = open_page(path(running))
    settled(page)  # charts that arrive during a click move the tab away
    page.get_by_test_id("tab-config").click()
    expect(page).to_have_url(re.compile("#config$"))
    page.reload()
    expect(page.get_by_test_id("config-fields")).to_be_visible()
    page.get_by_test_id("tab-config").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#pane-files")).to_be_visible()


def test_a_tab_chosen_before_the_scripts_have_arrived_is_shown(open_page, running):
    page, held = open_page(path(running)), []
    page.route("**/js/operation*.js", lambda route: held.append(route))
    page.route("**/bootstrap*.js", lambda route: held.append(route))
    page.goto(path(running), wait_until="commit")
    page.get_by_test_id("tab-config").click()
    for each in held:
        each.continue_()
    expect(page.get_by_test_id("config-fields")).to_be_visible()
    expect(page).to_have_url(re.compile("#config$"))


def test_the_log_follows_until_one_scrolls_up(open_page, running):
    making.log(running, "line\n" * 200)
    page = open_page(path(running))
    log = page.get_by_test_id("log")
    expect(log.locator(".log-line")).to_have_count(202)
    log.evaluate("log => (log.scrollTop = 0)")
    expect(page.get_by_test_id("follow")).not_to_be_checked()
    making.log(running, "the news\n")
    expect(log).to_contain_text("the news")
    assert log.evaluate("log => log.scrollTop") == 0
    page.get_by_test_id("follow").check()
    assert log.evaluate("log => log.scrollTop") > 100


def test_lines_have_times_levels_and_colours_and_nothing_in_them_is_html(open_page, running):
    stamp = "2026-11-23T12:04:13.077Z WARNING disk full\n"
    making.log(running, f"{stamp}\x1b[1;31mred <b>x</b>\x1b[0m\x1b[2K \u202eend\n")
    log = open_page(path(running)).get_by_test_id("log")
    warning = log.locator(".log-warning")
    expect(warning.locator(".log-time")).to_have_text("12:04:13")
    expect(warning.locator(".log-text")).to_have_text("disk full")
    expect(log.locator(".sgr-bold.sgr-c-red")).to_have_text("red <b>x</b>")
    assert log.locator("b").count() == 0
    expect(log.locator(".log-line").last).to_contain_text("\N{REPLACEMENT CHARACTER}end")


def test_the_log_is_searched_and_a_match_is_shown_in_the_whole_log(open_page, running):
    making.log(running, "".join(f"line {number}\n" for number in range(500)))
    page = open_page(path(running))
    log = page.get_by_test_id("log")
    page.get_by_test_id("log-search").fill("LINE 250")
    expect(page.get_by_test_id("log-count")).to_have_text("1 line")
    expect(log.locator(".log-line")).to_have_count(5)
    log.get_by_text("line 250").click()
    expect(log).to_contain_text("line 499")
    expect(page.get_by_test_id("log-search")).to_have_value("")
    expect(log.get_by_text("line 250", exact=True)).to_be_in_viewport()


def test_a_paused_log_adds_nothing_until_it_continues(open_page, running):
    page = open_page(path(running))
    log = page.get_by_test_id("log")
    expect(log).to_contain_text("first line")
    page.get_by_test_id("log-pause").click()
    making.log(running, "the news\n")
    expect(page.get_by_test_id("log-count")).to_have_text("Paused; there is new output.")
    assert "the news" not in log.inner_text()
    page.get_by_test_id("log-pause").click()
    expect(log).to_contain_text("the news")


def test_a_long_line_is_cut_and_shown_whole(open_page, running):
    making.log(running, "x" * 5000 + "end\n")
    log = open_page(path(running)).get_by_test_id("log")
    expect(log).to_contain_text("Show all 5,003 characters")
    expect(log).not_to_contain_text("end")
    log.get_by_role("button").click()
    expect(log).to_contain_text("xend")


@pytest.mark.slow
def test_a_chunk_with_more_lines_than_the_page_holds_is_shown(open_page, running):
    log = open_page(path(running)).get_by_test_id("log")
    expect(log).to_contain_text("first line")
    making.log(running, "x\n" * 12_000)
    expect(log.locator(".log-line")).to_have_count(12_000)


@pytest.mark.slow
def test_a_million_lines_are_read_in_windows(open_page, running):
    text = "".join(f"a line of an operation's log {number:4}\n" for number in range(1000))
    LogChunk.objects.bulk_create(
        LogChunk(operation=running, attempt=1, text=f"chunk {number}\n{text}")
        for number in range(1000)
    )
    page = open_page(path(running))
    log = page.get_by_test_id("log")
    expect(log.locator(".log-line").last).to_contain_text("999")
    assert log.locator(".log-line").count() <= 10_000
    first = log.locator(".log-line").first.get_attribute("data-id")
    log.evaluate("log => (log.scrollTop = 0)")
    page.wait_for_function(
        "first => Number(document.querySelector('.log-line').dataset.id) < first", arg=int(first)
    )
    newest = LogChunk.objects.order_by("-id").values_list("id", flat=True)[0]
    page.wait_for_function(
        "newest => Number(document.querySelector('.log-line:last-child').dataset.id) < newest",
        arg=newest,
    )
    assert log.locator(".log-line").count() <= 10_000
    expect(page.get_by_test_id("follow")).not_to_be_checked()
    page.get_by_test_id("follow").check()
    expect(log.locator(f'[data-id="{newest}"]').last).to_be_attached()


def test_the_id_is_copied(open_page, running):
    page = open_page(path(running))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the id").click()
    expect(page.get_by_role("button", name="Copy the id")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == running.pk


def test_the_log_is_downloaded(open_page, running):
    page = open_page(path(running))
    with page.expect_download() as download:
        page.get_by_test_id("log-download").click()
    assert "first line" in download.value.path().read_text()
