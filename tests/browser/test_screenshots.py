"""The pictures of the documentation: `RENEW_SCREENSHOTS=1` and this file write them anew."""

import io
import os
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser import scene
from tests.browser.conftest import settled

DOCS = Path(__file__).resolve().parents[2] / "docs"
SIZE = {"width": 1366, "height": 860}

pytestmark = pytest.mark.skipif("RENEW_SCREENSHOTS" not in os.environ, reason="writes into docs")


def test_write_the_pictures_of_the_documentation(open_page, ana):
    made = scene.build(ana)
    page = open_page("/", SIZE)
    ids = ",".join(each.pk for each in made.trained)
    for name, path, selector in (
        ("list", "/", "[data-testid=operations]"),
        ("screenshot", f"/operations/{made.running.pk}/", "[data-chart=loss] canvas"),
        ("new-operation", "/operations/new?recipe=digits", "[data-testid=submit]"),
        ("compare", f"/compare/?ids={ids}", "[data-chart=val_loss] canvas"),
    ):
        page.goto(path)
        if name == "compare":
            page.locator("[data-chart=val_loss]").scroll_into_view_if_needed()
        expect(page.locator(selector).first).to_be_visible()
        settled(page)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        few = picture.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(DOCS / f"{name}.png", optimize=True)
