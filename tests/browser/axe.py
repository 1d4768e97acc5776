"""What axe reports of a page that is open."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import NARROW

WIDEST = {"width": 1440, "height": 900}
CONTRAST = ["color-contrast"]  # all that a theme changes


def violations(page, rules=()):
    """Return what axe reports, of these rules only where some are given."""
    only = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
    results = Axe().run(page, options={"resultTypes": ["violations"], **only})
    return results.generate_report() if results.violations_count else ""


def judged(page, name=""):
    """Return what axe reports of a page, by name and theme."""
    found = {name: violations(page)}
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    found[f"{name}, dark"] = violations(page, rules=CONTRAST)
    page.emulate_media(color_scheme="light")
    return {name: said for name, said in found.items() if said}


def judged_at_each_width(page):
    """Return what axe reports of a page that is open, also on a phone, in both themes."""
    page.emulate_media(reduced_motion="reduce")  # or colours are measured while they change
    found = {}
    for viewport in (NARROW, WIDEST):
        page.set_viewport_size(viewport)
        found |= judged(page, f"{viewport['width']} px")
    return found
