"""Every page as axe judges it, in both themes and at both widths."""

import io
from datetime import timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone
from playwright.sync_api import expect

from apps.datasets import services as datasets
from apps.operations.studies import services as studies
from apps.workers.models import Worker
from tests.api.saved import saved
from tests.browser.conftest import NARROW, WIDE
from tests.pages import making

BARS = b"date,open,high,low,close\n" + b"".join(
    b"2020-%02d-%02d,100,102,99,101\n" % (day // 28 + 1, day % 28 + 1) for day in range(84)
)
DESIGN = {"values": {"parameters.fast": [3, 5], "parameters.slow": [10, 30]}}
CONTRAST = ["color-contrast"]  # all that a theme changes


def violations(page, rules=()):
    """Return what axe reports, of these rules only where some are given."""
    only = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
    results = Axe().run(page, options={"resultTypes": ["violations"], **only})
    return results.generate_report() if results.violations_count else ""


@pytest.fixture
def paths(ana):
    """The pages by name, with something to show on each."""
    ana.is_staff = True
    ana.save()
    made = [making.operation(ana, state, tags=["night"]) for state in ("COMPLETED", "FAILED")]
    running = making.operation(ana, "RUNNING", name="runs")
    for each in [*made, running]:
        making.attempt(each)
        making.curve(each)
        making.log(each, "epoch 1: val_loss 0.5\n")
    saved(made[0])
    making.operation(ana, "CANCELLED")
    Worker.objects.create(worker_id="w-1", kinds=["training"], slots=2, num_running=1)
    Worker.objects.create(worker_id="w-2", heartbeat_at=timezone.now() - timedelta(hours=1))
    prices = datasets.add_table(io.BytesIO(BARS), filename="bars.csv", owner=ana).pk
    config = {"recipe": "sma_crossover", "dataset": prices}
    study = studies.create(kind="backtest", config=config, design=DESIGN, owner=ana)
    return {
        "list": "/",
        "completed": f"/operations/{made[0].pk}/",
        "failed": f"/operations/{made[1].pk}/",
        "running": f"/operations/{running.pk}/",
        "new": "/operations/new",
        "form": "/operations/new?recipe=digits",
        "longer": f"/operations/new?extend={made[0].pk}",
        "compare": f"/compare/?ids={made[0].pk},{made[1].pk}",
        "checkpoints": "/checkpoints/",
        "studies": "/studies/",
        "study": study.get_absolute_url(),
        "workers": "/workers/",
        "datasets": "/datasets/",
        "dataset": f"/datasets/{prices}/",
        "settings": "/settings/",
        "docs": "/docs/",
        "docs-page": "/docs/configuration/",
        "docs-search": "/docs/?q=checkpoint",
        "account": "/account/",
        "password": "/account/password",
        "missing": "/nothing-is-here",
    }


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_nothing(open_page, paths, viewport):
    page, found = open_page("/", viewport), {}
    page.emulate_media(reduced_motion="reduce")  # or colours are measured while they change
    for name, path in paths.items():
        page.goto(path)
        page.wait_for_load_state("networkidle")
        found[name] = violations(page)
        page.emulate_media(color_scheme="dark")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        found[f"{name}, dark"] = violations(page, rules=CONTRAST)
        page.emulate_media(color_scheme="light")
    assert not any(found.values()), "\n".join(f"{name}: {each}" for name, each in found.items())


def test_axe_finds_nothing_in_a_dialog(open_page, paths):
    page = open_page(paths["running"])
    page.get_by_test_id("kill").click()
    expect(page.locator("#dialog")).to_be_visible()
    assert not violations(page)


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
