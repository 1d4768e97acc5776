"""How a person does what a journey says: by the mouse, or by the keyboard alone."""

import re
from abc import ABC, abstractmethod
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import settled

MOST_STOPS = 250  # of the Tab key on one page
HAS_FOCUS = "element => element === document.activeElement"
CHOSEN = "select => select.selectedIndex"
PLACE = "(select, label) => [...select.options].findIndex((each) => each.text.trim() === label)"


class Hands(ABC):
    """Whatever differs between mouse and keyboard; a target is a locator of one element."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, target: Locator) -> None:
        """Activate it once the page's scripts answer: before, a press has no effect."""
        settled(self.page)
        self._press(target)

    def check(self, target: Locator) -> None:
        """Tick a box."""
        settled(self.page)
        self._check(target)
        expect(target).to_be_checked()

    @abstractmethod
    def _press(self, target: Locator) -> None: ...

    @abstractmethod
    def _check(self, target: Locator) -> None: ...

    @abstractmethod
    def write(self, target: Locator, text: str) -> None:
        """Replace the text of a field."""

    @abstractmethod
    def choose(self, target: Locator, label: str) -> None:
        """Choose an option of a <select> by its text."""

    @abstractmethod
    def open_tab(self, name: str) -> None:
        """Show a tab of an operation's page."""

    def attach(self, target: Locator, file: Path) -> None:
        """Choose a file in the window that a field opens."""
        with self.page.expect_file_chooser() as opened:
            self.press(target)
        opened.value.set_files(file)

    def go(self, name: str, path: str) -> None:
        """Follow a link of the menu, which a narrow page hides behind a button."""
        self._show_menu()
        self.press(self._menu.get_by_role("link", name=re.compile(f"^{name}")))
        expect(self.page).to_have_url(re.compile(f"{re.escape(path)}$"))

    def sign_out(self) -> None:
        self._show_menu()
        self.press(self._sign_out)
        expect(self.page).to_have_url(re.compile("/login/$"))

    @property
    def _menu(self) -> Locator:
        return self.page.get_by_role("complementary", name="Main")

    @property
    def _sign_out(self) -> Locator:
        return self._menu.get_by_role("button", name="Sign out")

    def _show_menu(self) -> None:
        button = self.page.get_by_role("button", name="Menu")
        if button.is_visible() and button.get_attribute("aria-expanded") == "false":
            self.press(button)
        expect(self._sign_out).to_be_visible()


class Mouse(Hands):
    def _press(self, target: Locator) -> None:
        target.click()

    def _check(self, target: Locator) -> None:
        target.check()

    def write(self, target: Locator, text: str) -> None:
        target.fill(text)

    def choose(self, target: Locator, label: str) -> None:
        target.select_option(label=label)

    def open_tab(self, name: str) -> None:
        tab = self.page.get_by_role("tab", name=name, exact=True)
        self.press(tab)
        expect(tab).to_have_attribute("aria-selected", "true")


class Keyboard(Hands):
    def reach(self, target: Locator) -> None:
        """Press Tab until the target has the focus."""
        expect(target).to_be_visible()
        for _ in range(MOST_STOPS):
            if target.evaluate(HAS_FOCUS):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{target} is not reached by the Tab key")

    def _press(self, target: Locator) -> None:
        self.reach(target)
        self.page.keyboard.press("Enter")

    def _check(self, target: Locator) -> None:
        self.reach(target)
        self.page.keyboard.press("Space")

    def write(self, target: Locator, text: str) -> None:
        self.reach(target)
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)

    def choose(self, target: Locator, label: str) -> None:
        self.reach(target)
        by = target.evaluate(PLACE, label) - target.evaluate(CHOSEN)
        for _ in range(abs(by)):
            self.page.keyboard.press("ArrowDown" if by > 0 else "ArrowUp")
        expect(target.locator("option:checked")).to_have_text(label)

    def open_tab(self, name: str) -> None:
        settled(self.page)
        tab = self.page.get_by_role("tab", name=name, exact=True)
        self.reach(self.page.get_by_role("tab", selected=True))
        for _ in range(self.page.get_by_role("tab").count()):
            if tab.evaluate(HAS_FOCUS):
                break
            self.page.keyboard.press("ArrowRight")
        expect(tab).to_have_attribute("aria-selected", "true")


HANDS: dict[str, type[Hands]] = {"mouse": Mouse, "keyboard": Keyboard}
