"""Times of pages are in the time zone of the reader; those of the API and of digests are not."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from apps.dashboard import formatting
from apps.dashboard.rows import digest
from apps.dashboard.time_zone import zone
from apps.notifications import matching
from apps.notifications.models import Delivery, Rule
from tests.pages import making

AT = datetime(2026, 11, 26, 13, 7, 44, 500_000, tzinfo=UTC)


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+5"])
def test_a_known_time_zone_is_taken(name):
    assert zone(name) == ZoneInfo(name)


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "Europe", "../../etc/passwd", "/etc/passwd", "a/b/c/d", "A" * 65,
             "UTC\n", "tzdata.zi", "Ünï"],
)  # fmt: skip
def test_an_unknown_time_zone_is_that_of_the_server(name):
    assert zone(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("UTC", "2026-11-26 13:07:44 UTC"),
     ("Europe/Berlin", "2026-11-26 14:07:44 +01:00 · 2026-11-26 13:07:44 UTC"),
     ("Pacific/Chatham", "2026-11-27 02:52:44 +13:45 · 2026-11-26 13:07:44 UTC")],
)  # fmt: skip
def test_titles_have_the_offset_and_utc(name, expected):
    with timezone.override(zone(name)):
        assert formatting.exact(AT) == expected


@pytest.mark.parametrize(
    ("mode", "seconds", "expected"),
    [("ago", 0.4, "just now"), ("ago", 59.9, "59 s ago"), ("ago", 3599, "59 min ago"),
     ("ago", 86_399, "23 h ago"), ("ago", 29.9 * 86_400, "29 d ago"),
     ("ago", 30 * 86_400, "2026-11-27"), ("since", 250, "4 min 10 s"), ("since", -1, "0 s"),
     ("until", -23, "in 23 s"), ("until", 1, "any moment now"),
     ("at", 60, "02:52:44"), ("at", 86_400, "2026-11-27 02:52:44")],
)  # fmt: skip
def test_moments_in_words(mode, seconds, expected):
    with timezone.override(zone("Pacific/Chatham")):
        now = AT + timedelta(seconds=seconds)
        assert formatting.in_words(AT, mode, now) == expected


def test_a_part_is_not_sent_again_because_time_passed():
    first, later = ('<p><time title="x">' + said + "</time>, {}</p>" for said in ("1 s", "2 s"))
    assert digest(first) == digest(later)
    assert digest(first.format("step 1")) != digest(first.format("step 2"))


@pytest.mark.parametrize(("cookie", "offset"), [("Asia/Tokyo", " +09:00 · "), ("Nowhere", None)])
def test_pages_are_in_the_time_zone_of_the_cookie(page, ana, cookie, offset):
    made = making.operation(ana, "COMPLETED")
    page.cookies["time_zone"] = cookie
    for address in ("/", made.get_absolute_url()):
        text = page.get(address).content.decode()
        assert (" +09:00 · " in text) is (offset is not None)
        assert "min ago</time>" in text  # in the HTML already, so that nothing moves
    assert timezone.get_current_timezone_name() == "UTC"


def test_the_admin_is_in_the_time_zone_of_the_cookie(as_, ada):
    ada.is_staff = ada.is_superuser = True
    ada.save()
    making.operation(ada, created_at=AT)
    client = as_(ada)
    client.cookies["time_zone"] = "Asia/Tokyo"
    assert "2026-11-26 22:07:44" in client.get("/admin/operations/operation/").content.decode()


def test_the_api_stays_in_utc(page, ana):
    made = making.operation(ana, "COMPLETED", created_at=AT)
    page.cookies["time_zone"] = "Asia/Tokyo"
    found = page.get(f"/api/v1/operations/{made.pk}").json()["data"]
    assert found["created_at"] == "2026-11-26T13:07:44.500000Z"


def test_the_hour_of_a_digest_is_the_servers(monkeypatch, ana):
    monkeypatch.setattr(matching.timezone, "now", lambda: AT)
    rule = Rule.objects.create(user=ana, name="r", channel="mail", target="a@b.c", digest_hour=20)
    operation = making.operation(ana)
    with timezone.override(zone("Asia/Tokyo")):
        matching.notify(rule, operation.events.first(), operation)
    assert Delivery.objects.get().next_at == datetime(2026, 11, 26, 20, tzinfo=UTC)
