"""The upload form: a file in parts, a connection that breaks, a page that is loaded again."""

import re

import pytest
from playwright.sync_api import expect

from apps.datasets.models import Dataset, Upload
from trainops import concurrency_limit

pytestmark = pytest.mark.usefixtures("in_process")
PART_BYTES = 4 * 1024**2  # of static/js/uploads.js
PARTS = re.compile(r"/api/v1/datasets/uploads/up_")


@pytest.fixture
def table(tmp_path):
    """A CSV file of three parts."""
    rows = 1200
    path = tmp_path / "large.csv"
    path.write_text("a,b\n" + "".join(f"{number},{'x' * 8000}\n" for number in range(rows)))
    assert 2 * PART_BYTES < path.stat().st_size < 3 * PART_BYTES
    return path, rows


def send(page, path):
    page.get_by_label("CSV, Parquet, NPZ or text file").set_input_files(path)
    page.get_by_label("Name").fill("Large")
    page.get_by_test_id("upload").click()


def offsets_of(page, *, failing=()):
    """Note the offset of each part that is sent; those with a number in `failing` break off."""
    offsets = []

    def part(route):
        if route.request.method != "PATCH":
            route.continue_()
            return
        offsets.append(int(route.request.headers["upload-offset"]))
        route.abort() if len(offsets) in failing else route.continue_()

    page.route(PARTS, part)
    return offsets


def test_a_connection_that_breaks_is_tried_again(open_page, table):
    path, rows = table
    page = open_page("/datasets/")
    offsets = offsets_of(page, failing=[2])
    send(page, path)
    expect(page).to_have_url(re.compile("/datasets/ds_"))
    expect(page.locator("h1")).to_have_text("Large")
    assert offsets == [0, PART_BYTES, PART_BYTES, 2 * PART_BYTES]
    assert Dataset.objects.get().num_rows == rows


def test_a_busy_server_is_asked_to_finish_again(open_page, table, busy_once, monkeypatch):
    monkeypatch.setattr(concurrency_limit, "RETRY_SECONDS", 0)
    path, rows = table
    page = open_page("/datasets/")
    send(page, path)
    expect(page).to_have_url(re.compile("/datasets/ds_"))
    assert Dataset.objects.get().num_rows == rows and len(busy_once) == 2


def test_the_same_file_continues_after_a_reload(open_page, table):
    path, rows = table
    page = open_page("/datasets/")
    offsets = offsets_of(page, failing=range(3, 1000))
    send(page, path)
    expect(page.locator("[data-upload-state]")).to_contain_text("connection was cut")
    expect(page.locator("[data-upload-bar]")).to_be_visible()
    page.unroute(PARTS)
    page.goto("/datasets/")
    assert offsets[:3] == [0, PART_BYTES, 2 * PART_BYTES]
    offsets = offsets_of(page)
    send(page, path)
    expect(page).to_have_url(re.compile("/datasets/ds_"))
    assert offsets == [2 * PART_BYTES]
    assert Dataset.objects.get().num_rows == rows
    assert Upload.objects.get().dataset_id == Dataset.objects.get().pk


def test_a_refused_file_says_why_on_the_page(open_page, ana, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("a,a\n1,2\n")
    page = open_page("/datasets/")
    send(page, bad)
    expect(page.locator("[data-upload-state]")).to_have_class(re.compile("text-danger"))
    expect(page.locator("[data-upload-state]")).to_contain_text("a")
    assert not Upload.objects.exists()


def test_without_scripts_the_plain_form_is_sent(chromium, live_server, open_page, tmp_path):
    path = tmp_path / "flats.csv"
    path.write_text("a,b\n1,2\n")
    with_scripts = open_page("/datasets/")
    cookies = with_scripts.context.cookies()
    context = chromium.new_context(base_url=live_server.url, java_script_enabled=False)
    context.add_cookies(cookies)
    page = context.new_page()
    page.goto("/datasets/")
    send(page, path)
    expect(page).to_have_url(re.compile("/datasets/ds_"))
    context.close()
    assert Dataset.objects.get().name == "Large" and not Upload.objects.exists()


def test_a_text_is_uploaded_where_the_box_says_so(open_page, tmp_path):
    path = tmp_path / "play.txt"
    path.write_text("To be, or not to be:\nthat is the question\n")
    page = open_page("/datasets/")
    page.get_by_test_id("is-text").check()
    send(page, path)
    expect(page).to_have_url(re.compile("/datasets/ds_"))
    expect(page.get_by_role("cell", name="that is the question", exact=True)).to_be_visible()
    assert (Dataset.objects.get().format, Upload.objects.get().options["delimiter"]) == (
        "text",
        "\n",
    )
