"""What another client waits for, and what the server takes, while one client attacks it."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext, suppress
from itertools import cycle

import httpx
import psutil

from tests.gateway.attacks import attacked
from tests.journey.stack import ROOT, running

RECIPES = {"TRAINOPS_RECIPES": "tests.recipes.scripted:RECIPE"}  # also for the benchmark
PEOPLE = """
import json, django
django.setup()
from django.contrib.auth.models import Group, User
from django.test import Client
from trainops.http.models import Token
tokens = {}
for role in ("viewer", "operator"):
    person = User.objects.create_user(role)
    person.groups.add(Group.objects.get(name=role))
    tokens[role] = Token.objects.create(person)[1]
other = User.objects.create_user("other")
other.groups.add(Group.objects.get(name="operator"))
client = Client()
client.force_login(other)
print(json.dumps([tokens, client.cookies["sessionid"].value]))
"""


@contextmanager
def inhabited(data_dir):
    """An installation with a viewer and an operator, whose tokens the attacker has, another person
    and a model that can be exported."""
    with running(data_dir, **RECIPES) as stack:
        env = os.environ | {
            "TRAINOPS_DATA_DIR": str(stack.data_dir),
            "DJANGO_SETTINGS_MODULE": "trainops.settings",
        }
        output = subprocess.check_output([sys.executable, "-c", PEOPLE], cwd=ROOT, env=env)
        stack.tokens, stack.session = json.loads(output)
        stack.exported = stack.submit(recipe="digits", epochs=1)
        stack.wait(stack.exported, "COMPLETED")
        yield stack


class Measured:
    """What another client waits for, and what the server takes meanwhile."""

    def __init__(self, stack, running_id):
        self.seconds, self.memory, self.temporary = [], 0, 0
        self.processes = stack.processes("trainops.web")
        self.client = httpx.Client(
            base_url=stack.url, cookies={"sessionid": stack.session}, timeout=60
        )
        self.paths = ["/api/v1/health", "/", f"/operations/{running_id}/live?events_after=0"]

    def look(self, seconds):
        ends_at = time.monotonic() + seconds
        for path in cycle(self.paths):
            began_at = time.monotonic()
            response = self.client.get(path)
            self.seconds.append((time.monotonic() - began_at, path))
            assert response.status_code == 200, response.text[:500]
            self._weigh()
            if time.monotonic() > ends_at:
                return
            time.sleep(0.03)

    def _weigh(self):
        self.memory = max(self.memory, sum(each.memory_info().rss for each in self.processes))
        self.temporary = max(self.temporary, sum(map(unnamed_bytes, self.processes)))

    @property
    def p99(self):
        """Seconds, and what was asked for."""
        return sorted(self.seconds)[int(0.99 * (len(self.seconds) - 1))]


def unnamed_bytes(process):
    """Return how much disk the open files of a process take that have no name any more."""
    total = 0
    with suppress(FileNotFoundError, psutil.Error):
        for each in os.scandir(f"/proc/{process.pid}/fd"):
            with suppress(FileNotFoundError):
                if (status := each.stat()).st_nlink == 0:
                    total += status.st_blocks * 512
    return total


@contextmanager
def working(stack):
    """An operation that goes on during the block, and completes in its one attempt after it."""
    slow = {"recipe": "scripted", "parameters": {"step_seconds": 0.5}, "epochs": 500}
    operation_id = stack.submit(**slow)
    stack.wait_step(operation_id, 1)
    yield operation_id
    before = stack.get(f"operations/{operation_id}")
    stack.wait_step(operation_id, before["step"] + 2)
    stack.post(f"operations/{operation_id}/cancel")
    ended = stack.wait(operation_id, "CANCELLED")
    assert ended["attempt"] == 1


def attack(stack, names, seconds):
    """Return what another client measured during the attack."""
    with working(stack) as operation_id:
        measured = Measured(stack, operation_id)
        measured.look(1)
        measured.seconds.clear()
        target = {"port": stack.port, "tokens": stack.tokens, "operation_id": stack.exported}
        with attacked(names, **target) if names else nullcontext():
            measured.look(seconds)
    measured.client.close()
    return measured
