"""Workers, checkpoints, settings, keys, and what every answer carries."""

from datetime import timedelta
from html import unescape

import pytest
from django.utils import timezone

from apps.dashboard.csp import ContentSecurityPolicyMiddleware
from apps.workers import registry
from apps.workers.models import Worker
from tests.api.saved import saved
from tests.pages import making
from trainops.thresholds import with_kinds

PAGES = ["/", "/operations/new", "/datasets/", "/checkpoints/", "/workers/",
         "/workers/usage", "/settings/", "/account/", "/account/second-factor",
         "/help/keys", "/api/docs/"]  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_pages_carry_nothing_inline(page, ana, path):
    saved(making.operation(ana, "CANCELLED"))
    Worker.objects.create(worker_id="w")
    text = page.get(path).content.decode()
    assert "<style" not in text and " style=" not in text and " onclick=" not in text
    assert all(" src=" in tag.partition(">")[0] for tag in text.split("<script")[1:])
    assert "http://" not in text.replace("http://testserver", "")


@pytest.mark.parametrize("path", [p for p in PAGES if p != "/operations/new"])
def test_pages_ask_strangers_to_sign_in(client, db, path):
    assert client.get(path).url.startswith("/login/")


def test_the_policy_allows_our_own_files_only():
    class Request:
        path_info = "/"

    class Answer:
        def __init__(self):
            self.headers = {}

    policy = ContentSecurityPolicyMiddleware(lambda request: Answer())
    header = policy(Request()).headers["Content-Security-Policy"]
    assert header.startswith("default-src 'self'") and "unsafe" not in header
    Request.path_info = "/admin/operations/"
    assert "'unsafe-eval'" in policy(Request()).headers["Content-Security-Policy"]


def test_every_answer_carries_the_policy(client, db):
    for path in ("/login/", "/static/css/trainops.css", "/nothing"):
        response = client.get(path)
        response.close()
        assert "Content-Security-Policy" in response.headers


def test_workers_show_what_they_run(page, ana):
    Worker.objects.create(worker_id="gpu-1@b", kinds=["training"], slots=2, num_running=1)
    late = timezone.now() - timedelta(minutes=5)
    Worker.objects.create(worker_id="late", heartbeat_at=late)
    making.operation(ana, "RUNNING", name="busy", worker_id="gpu-1@b")
    text = page.get("/workers/").content.decode()
    assert "1 of 2" in text and ">busy</a>" in text and "Temporarily unavailable" in text


def test_workers_show_which_storage_they_cannot_reach(page, db):
    Worker.objects.create(worker_id="a", storage_problem="<c> is not mounted")
    Worker.objects.create(worker_id="b", dataset_problem="/d is not mounted")
    text = page.get("/workers/").content.decode()
    assert "Storage away" in text and "accepting no operations until" in text
    assert "&lt;c&gt; is not mounted" in text
    assert "Dataset storage unavailable: /d is not mounted" in text


def test_every_page_says_where_the_disk_is_nearly_full(page, db, settings):
    reserve = settings.THRESHOLDS.checkpoint_reserve_bytes
    Worker.objects.create(worker_id="a", host="roomy", storage_free_bytes=reserve)
    Worker.objects.create(worker_id="b", host="short", storage_free_bytes=reserve - 1)
    late = timezone.now() - timedelta(minutes=5)
    Worker.objects.create(worker_id="c", host="gone", storage_free_bytes=0, heartbeat_at=late)
    text = page.get("/").content.decode()
    assert text.count('data-testid="short-disk"') == 1
    assert "The disk for checkpoints on short is nearly full" in text


def test_workers_show_when_they_end(page, db):
    registry.register(worker_id="night", ends_in_seconds=3600, idle_exit_seconds=600)
    registry.register(worker_id="day")
    text = page.get("/workers/").content.decode()
    assert text.count('data-testid="ends"') == 1
    assert "ends after 10 min without work" in text


def test_workers_refresh_as_a_part(fetch, db):
    text = fetch.get("/workers/").content.decode()
    assert "<html" not in text and "No worker has registered" in text


def test_an_admin_drains_a_worker_and_lets_it_work_again(client, page, db):
    Worker.objects.create(worker_id="w 1")
    assert 'data-testid="drain"' not in page.get("/workers/").content.decode()
    assert page.post("/workers/w 1/drain").status_code == 403
    client.force_login(making.person("root", "admin"))
    for action, then in (("drain", "undrain"), ("undrain", "drain")):
        text = client.get("/workers/").content.decode()
        assert f'action="/workers/w%201/{action}"' in text
        assert client.post(f"/workers/w%201/{action}").status_code == 302
        assert f'data-testid="{then}"' in client.get("/workers/").content.decode()
    assert not Worker.objects.get(pk="w 1").is_draining
    assert client.post("/workers/w%201/stop").status_code == 404
    assert client.post("/workers/none/drain").status_code == 302


def test_workers_cost_the_same_however_many(page, db, django_assert_max_num_queries):
    for number in range(20):
        Worker.objects.create(worker_id=f"w{number}")
    with django_assert_max_num_queries(
        11
    ):  # two of them for quotas and disks, once in some seconds
        page.get("/workers/")


def test_checkpoints_are_listed_with_their_operations(page, ana, ben):
    saved(making.operation(ana, "CANCELLED", name="mine"))
    saved(making.operation(ben, "CANCELLED", name="bens"))
    text = page.get("/checkpoints/").content.decode()
    assert "mine" in text and "bens" in text
    assert text.count("/verify") == 1  # only one's own have buttons


def test_every_threshold_is_on_the_settings_page(page, db):
    text = unescape(page.get("/settings/").content.decode())
    for name, field in with_kinds().model_fields.items():
        assert f"TRAINOPS_{name.upper()}" in text and field.description in text


def test_keys_are_a_dialog_or_a_page(page, db):
    assert "<html" in page.get("/help/keys").content.decode()
    part = page.get("/help/keys", headers={"X-Requested-With": "fetch"}).content.decode()
    assert "<html" not in part and "always asks" in part
