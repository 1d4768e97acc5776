"""What a page shows in a browser of a time zone with an offset of 13 h 45 min."""

import re
from datetime import UTC, datetime

from playwright.sync_api import expect

from apps.dashboard.formatting import exact, share
from tests.browser.conftest import settled
from tests.browser.test_charts import chart, opened, picture, until_changed
from tests.pages import making
from trainops.quantities import number, size

ZONE = "Pacific/Chatham"
AT = datetime(2026, 1, 2, 13, 7, 44, tzinfo=UTC)
LOCAL = "2026-01-03 02:52:44 +13:45 · 2026-01-02 13:07:44 UTC"
VALUES = [
    0.0, 1.0, -2.5, 1e-5, 1.23456e-5, -1.5e-9, 0.00012345, 0.86123, 12.3456, 999.94, 999.96,
    -999.96, 1797.0, 8418.4, 123456.7, 1234567.0, 1.5e9,
]  # fmt: skip
TEXTS = (
    "() => [...document.querySelectorAll('time[data-clock]')].map((t) => [t.title, t.textContent])"
)
SENT = f"""async () => {{
  const html = await (await fetch(location.href)).text();
  const document = new DOMParser().parseFromString(html, "text/html");
  return ({TEXTS})();
}}"""
MOVED = """() => new Promise((resolve) => {
  let moved = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((each) => (moved += each.value)))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(moved), 100);
})"""


def test_times_are_in_the_time_zone_of_the_browser(open_page, ana):
    making.operation(ana, "COMPLETED", started_at=AT)
    page = open_page(zone=ZONE)
    time = page.locator("td time").first
    expect(time).to_have_attribute("title", LOCAL)  # by the script: the first visit has no cookie
    assert page.context.cookies()[-1]["value"] == ZONE
    page.reload()
    settled(page)
    expect(time).to_have_attribute("title", LOCAL)
    assert page.evaluate(TEXTS) == page.evaluate(SENT)
    expect(time).to_have_text("2026-01-03")
    assert page.evaluate(MOVED) < 0.01


def test_charts_and_log_are_in_the_time_zone_of_the_browser(open_page, ana):
    operation = making.operation(ana, "COMPLETED", started_at=AT)
    making.curve(operation)
    making.log(operation, "2026-01-02T13:07:44.000Z INFO    epoch 1: val_loss 0.5\n")
    page = opened(open_page, operation, zone=ZONE)
    before = picture(page)
    page.get_by_test_id("x-axis").select_option("time")
    until_changed(page, before)
    expect(chart(page).locator(".u-legend tr").first).to_contain_text(f"time ({ZONE})")
    line = page.locator(".log-time").first
    expect(line).to_have_text("02:52:44")
    expect(line).to_have_attribute("title", re.compile(re.escape(exact(AT))))


def test_scripts_write_numbers_as_the_server_does(open_page):
    page = open_page("/workers/")
    write = "([name, values]) => import('/static/js/numbers.js').then((m) => values.map(m[name]))"
    for name, said in (("number", number), ("bytes", size), ("share", share)):
        values = [abs(each) for each in VALUES] if name == "bytes" else VALUES
        assert page.evaluate(write, [name, values]) == [said(each) for each in values]
