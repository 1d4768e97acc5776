"""The web server itself, and several browsers that keep their connections open."""

import os
import subprocess
import sys
import time

import pytest
from playwright.sync_api import expect

from tests.journey.stack import ROOT
from tests.workers.test_server import web_server

pytestmark = pytest.mark.slow
SECONDS = 3  # on a machine that does little else; 30 where a server counts resting connections
TIMES_ALONE = 3  # on one that does much else: the first person has the server alone
NUM_PEOPLE = 4
PEOPLE = f"""
import django
django.setup()
from django.contrib.auth.models import Group, User
from trainops.launch.prepare import prepare
prepare()
for number in range({NUM_PEOPLE}):
    person = User.objects.create_user(f"person{{number}}", password="long-enough-1")
    person.groups.add(Group.objects.get(name="viewer"))
"""


def test_four_people_sign_in_side_by_side(chromium, tmp_path):
    """A browser keeps six connections open, and a server that counts them makes others wait."""
    env = os.environ | {
        "TRAINOPS_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "trainops.settings"
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", PEOPLE], cwd=ROOT, env=env, check=True)
    with web_server(tmp_path) as (_, _, port):
        contexts = [
            chromium.new_context(base_url=f"http://127.0.0.1:{port}") for _ in range(NUM_PEOPLE)
        ]
        seconds = []
        for number, context in enumerate(contexts):
            page = context.new_page()
            began_at = time.monotonic()
            page.goto("/login/")
            page.fill("input[name=username]", f"person{number}")
            page.fill("input[name=password]", "long-enough-1")
            page.press("input[name=password]", "Enter")
            expect(page.get_by_test_id("operations").or_(page.locator("main h1"))).to_be_visible()
            seconds.append(time.monotonic() - began_at)
        for context in contexts:
            context.close()
    sys.stderr.write(f"{seconds}\n")
    assert max(seconds) < max(SECONDS, TIMES_ALONE * seconds[0]), seconds
