"""When a page starts the tour, and what it says to whom."""

import pytest

from apps.dashboard.tour import STEPS
from tests.pages.test_account import sign_in, zoe  # noqa: F401 - a fixture


def starts_tour(client, address="/"):
    body = client.get(address).content.decode().partition("<body")[2].partition(">")[0]
    return "data-tour" in body.split()


@pytest.mark.usefixtures("zoe")
def test_only_the_first_page_after_the_first_sign_in_starts_the_tour(client):
    sign_in(client, "correct horse")
    assert client.get("/operations/live").status_code == 200  # no page
    assert starts_tour(client)
    assert not starts_tour(client)
    client.post("/logout/")
    sign_in(client, "correct horse")
    assert not starts_tour(client)


def test_a_viewer_is_not_shown_how_to_submit(as_, page, vera):
    assert page.get("/help/tour").content.decode().count("data-tour-step") == len(STEPS)
    text = as_(vera).get("/help/tour", headers={"X-Requested-With": "fetch"}).content.decode()
    assert text.count("data-tour-step") == len(STEPS) - 1 and "<html" not in text
