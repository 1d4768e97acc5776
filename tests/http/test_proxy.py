"""Behind a proxy that adds HTTPS: whose address counts, and what is marked as secure."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.thinning import quick_some
from trainops.http.addresses import client_address

ROOT = Path(__file__).resolve().parents[2]
TELL = """
import json, django
django.setup()
from django.conf import settings
names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS",
         "SECURE_PROXY_SSL_HEADER")
print(json.dumps([getattr(settings, name) for name in names]))
"""


@pytest.mark.parametrize(
    ("is_behind", "forwarded", "address"),
    [
        (False, "10.0.0.9", "192.0.2.1"),  # anybody can write the header
        (True, "10.0.0.9", "10.0.0.9"),
        (True, "1.1.1.1, 10.0.0.9", "10.0.0.9"),  # the first entry is the client's own
        (True, None, "192.0.2.1"),
        (True, "", "192.0.2.1"),
    ],
)
def test_the_last_entry_counts_and_only_behind_a_proxy(settings, is_behind, forwarded, address):
    settings.BEHIND_HTTPS_PROXY = is_behind
    environ = {"REMOTE_ADDR": "192.0.2.1"}
    environ |= {} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded}
    assert client_address(environ) == address


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "expected"),
    quick_some(
        [
            ("1", [True, True, 365 * 86_400, ["HTTP_X_FORWARDED_PROTO", "https"]]),
            ("0", [False, False, 0, None]),
        ],
        every=2,
    ),
)
def test_one_variable_decides_about_all(tmp_path, value, expected):
    env = os.environ | {
        "TRAINOPS_BEHIND_HTTPS_PROXY": value,
        "TRAINOPS_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "trainops.settings",
    }
    said = subprocess.check_output([sys.executable, "-c", TELL], cwd=ROOT, env=env)
    assert json.loads(said) == expected


@pytest.mark.django_db
def test_links_of_lists_are_https_behind_a_proxy(settings):
    from tests.api.conftest import signed_in
    from tests.pages import making

    api = signed_in("vera", "viewer")
    for number in range(2):
        making.operation(api.user, name=f"n{number}")
    path = "/api/v1/operations?limit=1"
    header = {"X-Forwarded-Proto": "https"}
    assert api.client.get(path, headers=header).json()["next"].startswith("http://")
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    answer = api.client.get(path, headers=header)
    assert answer.json()["next"].startswith("https://")
