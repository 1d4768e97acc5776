"""Text that no database stores: refused alike by the API, the pages and the admin."""

from base64 import b64encode
from html import unescape
from urllib.parse import quote

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tests.admin.conftest import staff
from trainops.gateway.environ import with_body
from trainops.http.admission import Admission

pytestmark = pytest.mark.database
NUL_TEXTS = ["\x00", "a\x00b"]


@pytest.fixture
def admin(db):
    browser = staff("root", "admin")
    browser.user.is_superuser = True
    browser.user.save()
    return browser


def cursor(*parts):
    return b64encode(orjson.dumps(parts)).decode()


def require_refused(response, problem="U+0000"):
    assert response.status_code == 400, response.content[:300]
    if response.request["PATH_INFO"].startswith("/api/"):
        assert problem in response.json()["error"]["message"]
    else:
        page = unescape(response.content.decode())
        assert problem in page and "Bad request" in page


@pytest.mark.parametrize(
    "address",
    [
        "/operations/%00/", "/studies/%00/", "/datasets/%00/", "/operations/live?rows=%00",
        "/operations/new?fork=%00", "/operations/op_1/files/%00/x", "/?q=%00", "/?%00=q",
        "/admin/workers/worker/%00/change/", "/admin/operations/operation/?q=%00",
        "/api/v1/operations?search=%00", "/api/v1/operations/%00", "/login/?next=%00",
    ],
)  # fmt: skip
def test_in_addresses(admin, address):
    require_refused(admin.get(address))


@pytest.mark.parametrize("text", NUL_TEXTS)
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/operations/act/cancel", "id"), ("/operations/new", "once"), ("/account/", "name"),
        ("/studies/study_1/cancel", "next"), ("/admin/workers/worker/", "_selected_action"),
        ("/login/", "username"), ("/datasets/upload", "name"),
    ],
)  # fmt: skip
def test_in_forms(admin, path, field, text):
    require_refused(admin.post(path, {field: text}))  # multipart
    require_refused(admin.post(path, {field: [text, "a"]}))
    encoded = f"{field}=a%00"
    require_refused(admin.post(path, encoded, content_type="application/x-www-form-urlencoded"))


def test_in_names_of_fields(admin):
    require_refused(admin.post("/account/", {"a\x00": "b"}))
    require_refused(
        admin.post("/account/", "%00=b", content_type="application/x-www-form-urlencoded")
    )


def test_in_forms_of_the_api(admin):
    file = SimpleUploadedFile("a.csv", b"a\n1\n")
    for field in ("name", "encoding", "a\x00"):
        response = admin.post("/api/v1/datasets", {field: "\x00", "file": file})
        assert response.status_code == 400


@pytest.mark.parametrize("text", ['"\\u0000"', '"\\ud800"', "[" * 100_000, "1" * 5000, "NaN"])
def test_in_json_within_forms_of_the_api(admin, text):
    file = SimpleUploadedFile("a.csv", b"a\n1\n")
    response = admin.post("/api/v1/datasets", {"columns": f'{{"a": {text}}}', "file": file})
    assert response.status_code == 400
    file.seek(0)
    response = admin.post("/api/v1/operations/import", {"operation": text, "file": file})
    assert response.status_code == 400


def test_in_headers(client, db):
    credentials = b64encode(b"a\x00:b").decode()
    headers = {"authorization": f"Basic {credentials}"}
    assert client.get("/api/v1/tokens", headers=headers).status_code == 401
    require_refused(client.post("/api/v1/operations", headers={"idempotency-key": "a\x00"}))
    require_refused(client.get("/login/", headers={"x-requested-with": "\x00"}))


@pytest.mark.parametrize("name", ["sessionid", "csrftoken", "messages"])
def test_in_cookies(client, db, name):
    for address in ("/", "/api/v1/me"):
        client.cookies.load(f'{name}="\\000"')
        require_refused(client.get(address))


def test_in_cookies_and_tokens_of_large_bodies(rf, db):
    """The gateway asks who sends a large body before the application sees it."""
    for headers in ({"cookie": 'sessionid="\\000"'}, {"authorization": "Bearer a\x00"}):
        environ = rf.get("/", headers=headers).environ
        assert Admission().prove(with_body(environ, None, 0)) is None


def test_in_cursors(admin):
    moment = "2026-01-01T00:00:00Z"
    without_zone = "2026-01-01T00:00:00"
    for edge in ((moment, "\x00"), ("\x00", "a"), (without_zone, "a")):
        parts = ("-created_at", False, *edge)
        response = admin.get("/api/v1/operations", {"cursor": cursor(*parts)})
        assert "cursor" in response.json()["error"]["details"]["fields"]
        assert admin.get("/", {"cursor": cursor(*parts)}).status_code == 200


LISTS = ("operations", "studies", "checkpoints", "datasets")
FAR = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999Z")
LONG_NUMBERS = ("0000000019999999999999999999", "000000001" + "0" * 5000, "9" * 5000)


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("moment", FAR)
def test_times_beyond_the_calendar_in_cursors(admin, path, moment):
    for backwards in (False, True):
        edge = cursor("-created_at", backwards, moment, "x")
        assert admin.get(f"/api/v1/{path}", {"cursor": edge}).status_code in (200, 400)


@pytest.mark.parametrize("number", LONG_NUMBERS, ids=["zeros", "digits", "nines"])
def test_numbers_that_only_begin_as_small_ones(admin, number):
    for path in (*LISTS, "datasets/ds_none/preview"):
        assert admin.get(f"/api/v1/{path}", {"limit": number}).status_code in (400, 404), path
    assert admin.get("/api/v1/operations", {"limit": "0" * 9 + "1"}).status_code == 200
    assert admin.post("/account/", {"name": "x", "days": number}).status_code == 422


@pytest.mark.parametrize("charset", ["hex", "idna", "raw_unicode_escape", "undefined", "utf-7"])
@pytest.mark.parametrize("path", ["/login/", "/account/", "/datasets/upload", "/api/v1/datasets"])
def test_other_charsets_are_refused(admin, charset, path):
    part = b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\n\\ud800\r\n--b--\r\n'
    for kind in ("multipart/form-data; boundary=b", "application/x-www-form-urlencoded"):
        form = f"{kind}; charset={charset}"
        require_refused(admin.generic("POST", path, part, form), "charset")
        require_refused(admin.generic("GET", path, b"x", form), "charset")


@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", "utf8", "us-ascii"])
def test_the_usual_charsets_are_not_refused(admin, charset):
    form = f"application/x-www-form-urlencoded; charset={charset}"
    assert admin.generic("GET", "/", b"x", form).status_code == 200


def test_times_beyond_the_calendar_in_lists_of_the_admin(admin):
    far = ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2026-02-30 00:00")
    for path in ("operations/operation/?created_at__gte", "auth/user/?last_login__lt"):
        for moment in far:
            require_refused(admin.get(f"/admin/{path}={quote(moment)}"), "allowed: years 1 to 9999")
    near = quote("2026-01-01 00:00:00+00:00")
    assert admin.get(f"/admin/operations/operation/?created_at__gte={near}").status_code == 200


def test_the_csrf_token_is_asked_for_first(admin):
    admin.handler.enforce_csrf_checks = True
    assert admin.post("/account/", {"name": "\x00"}).status_code == 403


@pytest.mark.parametrize(
    "text",
    [
        "ä",
        "\U0001f600",
        "'",
        "<b>",
        "é" * 50,
        "\u0645\u06cc\u200c\u062e",
        "👩\u200d🔬 👩🏽\u200d🔬",
    ],
)
def test_what_can_be_stored_is_not_refused(admin, text):
    assert admin.get("/", {"q": text}).status_code == 200
    assert admin.post("/account/", {"name": text}).status_code == 200


@pytest.mark.parametrize(
    "text",
    ["\u202e", "\x7f", "a\x1b[2J", "\u200b", "a\u200db", "\u200d", "é\u200d", "é\u200c\u200cé"],
)
def test_a_name_with_invisible_characters_is_refused(admin, text):
    assert admin.get("/", {"q": text}).status_code == 200
    answer = admin.post("/account/", {"name": text})
    assert answer.status_code == 422 and b"invisible characters (U+" in answer.content
