"""The security and cache headers of every response."""

import pytest

from tests.api.conftest import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def otto(db):
    return signed_in("otto", "operator")


@pytest.mark.parametrize("path", ["/", "/account/", "/account/password", "/api/v1/operations"])
def test_what_a_signed_in_person_sees_is_not_kept(otto, path):
    response = otto.client.get(path)
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]


def test_a_new_token_is_not_kept(otto):
    assert "no-store" in otto.post("tokens", {"name": "a"})["Cache-Control"]
    page = otto.client.post("/account/", {"name": "b", "days": ""})
    assert "no-store" in page["Cache-Control"]


@pytest.mark.parametrize("path", ["/login/", "/static/css/trainops.css", "/api/v1/health", "/x"])
def test_nothing_is_shown_in_a_frame_or_taken_for_another_type(client, path):
    response = client.get(path)
    response.close()
    assert response["X-Frame-Options"] == "DENY"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"]
