"""Whatever happens under /api/, the answer is in the envelope."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import orjson
import pytest
from django.test import Client
from django.utils.functional import lazystr
from hypothesis import given
from hypothesis import strategies as st

from trainops.http.envelope import Failure, Page, encode

pytestmark = pytest.mark.urls("tests.http.urls")


@pytest.fixture
def client():
    return Client(raise_request_exception=False)


def failure(response, status, code):
    """The error of a response that must be a failure in the envelope."""
    assert response.status_code == status
    assert response["Content-Type"] == "application/json"
    body = response.json()
    assert set(body) == {"success", "error"} and body["success"] is False
    assert set(body["error"]) == {"code", "message", "details"}
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    return body["error"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ("refusal", 409, "NOPE"),
        ("config", 400, "INVALID_CONFIG"),
        ("django", 400, "VALIDATION_ERROR"),
        ("missing", 404, "NOT_FOUND"),
        ("denied", 403, "PERMISSION_DENIED"),
        ("throttled", 429, "THROTTLED"),
        ("database", 503, "SERVICE_UNAVAILABLE"),
        ("suspicious", 400, "BAD_REQUEST"),
        ("bug", 500, "INTERNAL_ERROR"),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_every_exception_is_answered_in_the_envelope(client, settings, error, status, code, debug):
    settings.DEBUG = debug
    failure(client.get(f"/api/v1/fail/{error}"), status, code)


def test_a_wrong_config_names_every_field(client):
    error = failure(client.get("/api/v1/fail/config"), 400, "INVALID_CONFIG")
    assert error["details"]["fields"] == {"lr": "-1 is not positive", "epochs": "0 is below 1"}
    assert error["message"] == "lr: -1 is not positive (and 1 more: epochs)"


def test_a_throttled_client_learns_how_long_to_wait(client):
    response = client.get("/api/v1/fail/throttled")
    assert response["Retry-After"] == "7"
    assert response.json()["error"]["details"] == {"retry_after_seconds": 7}


def test_a_bug_gives_a_reference_that_the_log_has_and_no_more(client, caplog):
    error = failure(client.get("/api/v1/fail/bug"), 500, "INTERNAL_ERROR")
    assert error["details"]["reference"] in caplog.text
    assert "division" not in json.dumps(error)


@pytest.mark.parametrize("path", ["/api/v1/fail/database", "/page/database", "/page/session"])
def test_a_database_that_is_away_is_said_once_and_passes(client, caplog, path):
    response = client.get(path)
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    if path.startswith("/api/"):
        assert failure(response, 503, "SERVICE_UNAVAILABLE")["details"] == {"part": "database"}
    else:
        assert b"The database does not answer" in response.content
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    message = f"The database did not respond to {path}: server closed the connection"
    assert (record.getMessage(), record.exc_info) == (message, None)


def test_a_body_without_a_length_is_refused_and_never_taken_for_an_empty_one(client):
    response = client.generic("POST", "/api/v1/echo", headers={"transfer-encoding": "chunked"})
    failure(response, 411, "LENGTH_REQUIRED")


def test_a_refusal_that_passes_says_when(client):
    response = client.get("/api/v1/fail/later")
    failure(response, 503, "LATER")
    assert response["Retry-After"] == "9"


def test_a_refusal_that_a_page_does_not_answer_itself_is_a_page(client):
    response = client.get("/page/later")
    assert (response.status_code, response["Retry-After"]) == (503, "9")
    assert b"Not now." in response.content


def test_a_plain_django_view_is_no_exception(client):
    failure(client.get("/api/v1/plain"), 500, "INTERNAL_ERROR")


@pytest.mark.parametrize("path", ["/api/", "/api/v1/", "/api/v1/nowhere", "/api/v2/operations"])
def test_an_address_that_nothing_answers_at(client, path):
    failure(client.get(path), 404, "NOT_FOUND")


def test_pages_keep_their_own_errors(client):
    assert client.get("/page").content == b"a page"
    assert client.get("/page/none")["Content-Type"].startswith("text/html")
    assert client.get("/page/bug")["Content-Type"].startswith("text/html")


def test_a_foreign_host_is_refused_in_the_envelope(client):
    failure(client.get("/api/v1/me", headers={"host": "evil.example"}), 400, "BAD_REQUEST")


@pytest.mark.parametrize("address", ["/api/v1/me?search=%00", "/api/v1/tokens/%00"])
def test_a_nul_in_the_address_reaches_no_database(client, address):
    failure(client.get(address), 400, "BAD_REQUEST")


def test_a_wrong_method_names_the_right_ones(client):
    error = failure(client.get("/api/v1/echo"), 405, "METHOD_NOT_ALLOWED")
    assert error["details"]["given"] == "GET"
    assert "POST" in error["details"]["allowed"]


def test_a_wrong_media_type_names_the_right_one(client):
    response = client.post("/api/v1/echo", "a: 1", content_type="application/yaml")
    error = failure(response, 415, "UNSUPPORTED_MEDIA_TYPE")
    assert error["details"] == {"given": "application/yaml", "allowed": ["application/json"]}


def test_html_is_not_to_be_had(client):
    response = client.post(
        "/api/v1/echo", "{}", content_type="application/json", headers={"accept": "text/html"}
    )
    failure(response, 406, "NOT_ACCEPTABLE")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'"\\ud800"', "not valid JSON"),
        (b'{"a": NaN}', "not valid JSON"),
        (b'{"a": 1e999}', "not valid JSON"),
        (b'{"a": "\\u0000"}', "U+0000"),
        (b'{"\\u0000": 1}', "U+0000"),
        (b"[" * 60 + b"]" * 60, "deeper than 50"),
        (b"[" * 10_000, "not valid JSON"),
        (b"[" * 100_000, "more than 20000 values"),
    ],
)
def test_a_body_that_cannot_be_used_says_why(client, body, problem):
    response = client.post("/api/v1/echo", body, content_type="application/json")
    assert problem in failure(response, 400, "PARSE_ERROR")["message"]


def test_a_body_that_is_too_large(client, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    body = json.dumps({"a": "x" * 2000})
    response = client.post("/api/v1/echo", body, content_type="application/json")
    failure(response, 413, "BODY_TOO_LARGE")


def test_success_wraps_the_data(client):
    response = client.post("/api/v1/echo", {"a": [1, None]}, content_type="application/json")
    assert response.json() == {"success": True, "data": {"a": [1, None]}}


def test_every_list_is_counted():
    assert json.loads(encode([1, 2]))["total_count"] == 2


def test_nothing_stays_nothing(client):
    assert client.get("/api/v1/empty").content == b""


def test_a_page_carries_its_count_and_links():
    assert json.loads(encode(Page([1], None, "n", None))) == {
        "success": True,
        "data": [1],
        "total_count": None,
        "next": "n",
        "previous": None,
    }


def test_numbers_that_json_lacks_are_spelled():
    body = json.loads(encode({"a": [math.nan, (math.inf,), {"b": -math.inf}], "c": 0.1}))
    assert body["data"] == {"a": ["NaN", ["Infinity"], {"b": "-Infinity"}], "c": 0.1}
    assert math.isnan(float("NaN")) and float("-Infinity") == -math.inf


def test_values_of_every_day_are_encoded():
    moment = datetime(2024, 12, 13, 14, 30, tzinfo=UTC)
    value = {"when": moment, "cost": Decimal("1.10"), "who": lazystr("ana"), "at": Path("/x")}
    assert json.loads(encode(value | {"all": {2, 1}}))["data"] == {
        "when": "2024-12-13T14:30:00Z",
        "cost": "1.10",
        "who": "ana",
        "at": "/x",
        "all": [1, 2],
    }


def test_ready_bytes_pass_through():
    assert encode(orjson.Fragment(b"[1]")) == b'{"success":true,"data":[1]}'


def test_what_the_fast_encoder_refuses_is_still_encoded():
    assert json.loads(encode({"big": 2**70, "half": "\ud800"}))["data"]["big"] == 2**70


def test_a_failure_is_no_success():
    assert json.loads(encode(Failure("A", "b", {})))["success"] is False


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.slow
@given(JSON)
def test_any_value_is_encoded_as_standard_json(value):
    def refuse(constant):
        raise AssertionError(constant)

    assert json.loads(encode(value), parse_constant=refuse)["success"] is True
