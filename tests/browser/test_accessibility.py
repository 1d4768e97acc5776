"""Every page as axe judges it, in both themes and at both widths."""

import io
from datetime import timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import Group
from django.utils import timezone
from playwright.sync_api import expect

from apps.datasets import services as datasets
from apps.notifications.models import Rule
from apps.operations.studies import services as studies
from apps.workers.models import LoadSample, Worker
from tests.api.saved import saved
from tests.browser.conftest import NARROW, WIDE, settled
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
    ana.groups.set([Group.objects.get(name="admin")])
    rule = {"channel": "webhook", "target": "https://example.org/hook", "name": "to the chat"}
    Rule.objects.create(user=ana, **rule)
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
    LoadSample.objects.create(worker_id="w-1", cpu_percent=12.5, memory_bytes=2**30)
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
        "usage": "/workers/usage",
        "load": "/workers/w-1/load",
        "datasets": "/datasets/",
        "dataset": f"/datasets/{prices}/",
        "cleanup": "/checkpoints/cleanup",
        "notifications": "/notifications/",
        "settings": "/settings/",
        "api": "/api/docs/",
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
        settled(page)
        found[name] = violations(page)
        page.emulate_media(color_scheme="dark")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        found[f"{name}, dark"] = violations(page, rules=CONTRAST)
        page.emulate_media(color_scheme="light")
    assert not any(found.values()), "\n".join(f"{name}: {each}" for name, each in found.items())


def test_axe_finds_nothing_in_dialogs(open_page, paths):
    """A question about an operation, an edit, a question of a form, and one about several rows."""
    page = open_page(paths["running"])
    dialog = page.locator("#dialog")

    def judged(path, *clicks):
        if not page.url.endswith(path):
            page.goto(path)
        for each in clicks:
            page.get_by_test_id(each).first.click()
        expect(dialog).to_be_visible()
        found = violations(page)
        dialog.locator("[data-close]").first.click()
        expect(dialog).to_be_hidden()
        return found

    assert not judged(paths["running"], "kill")
    assert not judged(paths["running"], "edit-operation")
    assert not judged("/workers/", "drain")
    page.goto("/checkpoints/")
    page.locator("input[form=chosen]").first.check()
    assert not judged("/checkpoints/", "delete-chosen")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_login_page(open_page, scheme):
    page = open_page(scheme=scheme)
    page.context.clear_cookies()
    page.goto("/login/")
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
