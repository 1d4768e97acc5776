"""A page offers nothing that its reader's role is refused."""

import re
from html.parser import HTMLParser

import pytest

from tests.pages import making
from tests.pages.test_refusals import hers as hers
from tests.pages.test_refusals import posts

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

ELSEWHERE = ("/static/", "/admin/", "/docs/", "/api/", "/login", "/logout")
NOT_YOURS = re.compile(r"only your own|it belongs to")
REFUSED = 403
FETCH = {"X-Requested-With": "fetch"}


class Offered(HTMLParser):
    """The links of a page, and its forms with their hidden fields."""

    def __init__(self, text):
        super().__init__()
        self.links, self.forms, self.hidden = set(), [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "form":
            self.hidden = {}
            if given.get("method") == "post":
                self.forms.append((given.get("action") or "", self.hidden))
        elif tag == "input" and given.get("type") == "hidden":
            self.hidden.setdefault(given["name"], []).append(given.get("value") or "")
        elif tag == "a" and given.get("href", "").startswith("/"):
            self.links.add(given["href"].partition("#")[0])
        if "hx-post" in given:
            self.forms.append((given["hx-post"], self.hidden))


def refused(client, page, text):
    """Return what a page offers and its reader is refused, by their role or as no owner."""
    offered, found = Offered(text), set()
    answers = [
        ("get", address, client.get(address, headers=FETCH))
        for address in offered.links
        if is_here(address)
    ]
    for given, hidden in offered.forms:
        address = given or page
        if is_here(address):
            answers.append(("post", address, client.post(address, hidden, headers=FETCH)))
    for method, address, response in answers:
        text = "" if response.streaming else response.content.decode(errors="replace")
        if response.status_code == REFUSED or NOT_YOURS.search(text):
            found.add((method, address))
    return found


def is_here(address):
    return not address.startswith(ELSEWHERE)


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_a_page_offers_what_its_reader_may_do(as_, hers, role):
    client = as_(making.person("other", role))
    addresses = {address for _, address in posts(hers)}
    num_pages = 0
    for address in sorted(addresses):
        response = client.get(address)
        if response.status_code == 200 and response["Content-Type"].startswith("text/html"):
            num_pages += 1
            assert refused(client, address, response.content.decode()) == set(), address
    assert num_pages > 15


@pytest.mark.parametrize(("role", "keys"), [("viewer", ()), ("operator", ("n", "r", "c"))])
def test_keys_that_change_something_are_those_of_operators(as_, role, keys):
    client = as_(making.person("other", role))
    text = client.get("/help/keys").content.decode()
    assert [key for key in "nrc" if f"<dt><kbd>{key}</kbd></dt>" in text] == [*keys]
    assert ("data-may-submit" in client.get("/").content.decode()) == bool(keys)
