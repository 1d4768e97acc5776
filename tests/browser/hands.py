"""How a test activates what it names: by the mouse, or by the keyboard alone."""

import re
from typing import Literal

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import settled

Means = Literal["mouse", "keyboard"]
MOST_STOPS = 250  # of the Tab key on one page
HAS_FOCUS = "element => element === document.activeElement"


class Hands:
    def __init__(self, page: Page, means: Means) -> None:
        self.page, self.is_keyboard = page, means == "keyboard"

    def reach(self, target: Locator) -> None:
        """Press Tab until the target has the focus."""
        expect(target).to_be_visible()
        for _ in range(MOST_STOPS):
            if target.evaluate(HAS_FOCUS):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{target} is not reached by the Tab key")

    def press(self, target: Locator) -> None:
        """Activate it once the page's scripts answer: before, a press has no effect."""
        settled(self.page)
        if not self.is_keyboard:
            target.click()
            return
        self.reach(target)
        self.page.keyboard.press("Enter")

    def check(self, target: Locator) -> None:
        settled(self.page)
        if not self.is_keyboard:
            target.check()
        else:
            self.reach(target)
            self.page.keyboard.press("Space")
        expect(target).to_be_checked()

    def write(self, target: Locator, text: str) -> None:
        if not self.is_keyboard:
            target.fill(text)
            return
        self.reach(target)
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)

    def open_tab(self, name: str) -> None:
        """Show a tab of an operation's page."""
        tab = self.page.get_by_test_id(f"tab-{name}")
        if not self.is_keyboard:
            tab.click()
        else:
            self.reach(self.page.locator("[role=tab][aria-selected=true]"))
            while not tab.evaluate(HAS_FOCUS):
                self.page.keyboard.press("ArrowRight")
        expect(tab).to_have_attribute("aria-selected", "true")

    def go(self, name: str, path: str) -> None:
        """Follow a link of the menu, which a narrow page hides behind a button."""
        link = self.page.locator("#menu").get_by_role("link", name=re.compile(f"^{name}"))
        self._show_menu()
        self.press(link)
        expect(self.page).to_have_url(re.compile(f"{re.escape(path)}$"))

    def sign_out(self) -> None:
        self._show_menu()
        self.press(self.page.get_by_test_id("sign-out"))
        expect(self.page).to_have_url(re.compile("/login/$"))

    def _show_menu(self) -> None:
        button = self.page.get_by_role("button", name="Menu")
        if button.is_visible() and button.get_attribute("aria-expanded") == "false":
            self.press(button)
        expect(self.page.get_by_test_id("sign-out")).to_be_visible()
