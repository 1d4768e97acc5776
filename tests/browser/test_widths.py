"""Every page at the width of a phone, of a tablet, of a laptop and of a large screen."""

import pytest

from tests.browser import every_page
from tests.browser.conftest import WIDE, settled

WIDTHS = (360, 390, 768, 1024, 1440, 2560)
FITS = "document.documentElement.scrollWidth <= innerWidth"
CUT = """
[...document.querySelectorAll(".filter-form select")].filter((select) => {
  const style = getComputedStyle(select), pen = document.createElement("canvas").getContext("2d");
  pen.font = style.font;
  const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const { width } = pen.measureText(select.selectedOptions[0]?.text ?? "");
  return select.checkVisibility() && width > room + 1;
}).map((select) => select.name || select.id)
"""
RESIZE_MS, LOOK_MS = 5000, 50  # until charts have another size


@pytest.fixture
def paths(ana, tmp_path):
    return every_page.addresses(ana, tmp_path)


def fits(page):
    """Whether the page fits now or soon; wait_for_function of an expression needs eval."""
    for _ in range(RESIZE_MS // LOOK_MS):
        if page.evaluate(FITS):
            return True
        page.wait_for_timeout(LOOK_MS)
    return False


def test_every_page_fits_every_width(open_page, paths):
    page, too_wide, cut = open_page("/settings/"), [], []
    for name, path in paths.items():
        page.goto(path)
        settled(page)
        for width in WIDTHS:
            page.set_viewport_size(WIDE | {"width": width})
            if not fits(page):
                too_wide.append(f"{name} at {width} px")
            cut += [f"{each} of {name} at {width} px" for each in page.evaluate(CUT)]
    assert not too_wide
    assert not cut


@pytest.mark.parametrize("name", ["list", "study", "workers", "dataset", "settings"])
def test_tables_use_the_width_of_a_large_screen(open_page, paths, name):
    page = open_page(paths[name], WIDE | {"width": 2560})
    table = page.get_by_role("table").first
    assert table.bounding_box()["width"] > 2000
