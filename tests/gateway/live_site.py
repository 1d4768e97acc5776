"""A web server by itself, with a running operation that a test changes as a worker would."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import contextmanager, suppress

import httpx

from tests.journey.stack import ROOT
from tests.waiting import wait_until

PREPARE = """
import json, django
django.setup()
from datetime import timedelta
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from apps.operations.requests import services
from trainops.launch.prepare import prepare
from trainops.recipes import recipes
prepare()
sessions = {}
for name in ("owner", "viewer", "other", "stranger"):
    person = User.objects.create_user(name, password="long-enough-1")
    if name != "stranger":
        role = "operator" if name == "owner" else "viewer"
        person.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(person)
    sessions[name] = client.cookies["sessionid"].value
config = {**recipes()["digits"].example, "epochs": 5}
owner = User.objects.get(username="owner")
made = services.submit(kind="training", config=config, owner=owner, name="watched")
made.row.update(
    state="RUNNING", attempt=1, worker_id="w", step=1, total_steps=1000,
    lease_expires_at=timezone.now() + timedelta(days=1), started_at=timezone.now(),
)
print(json.dumps([sessions, made.pk]))
"""


class LiveSite:
    def __init__(self, data_dir):
        self.data_dir = data_dir
        self.env = os.environ | {
            "TRAINOPS_DATA_DIR": str(data_dir), "DJANGO_SETTINGS_MODULE": "trainops.settings",
        }  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        done = subprocess.check_output([sys.executable, "-c", PREPARE], cwd=ROOT, env=self.env)
        self.sessions, self.operation = json.loads(done.splitlines()[-1])
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "trainops.web", "--port", str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=self.env, start_new_session=True)
        wait_until(self._answers)

    def kill(self):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _answers(self):
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/api/v1/health").is_success

    def advance(self, step):
        """Move the operation to a step, as a worker does."""
        self.execute("UPDATE operations_operation SET step = ? WHERE id = ?", step, self.operation)

    def log(self, text):
        """Store output of the operation, as a worker does."""
        self.execute(
            "INSERT INTO operations_logchunk (operation_id, attempt, text) VALUES (?, 1, ?)",
            self.operation,
            text,
        )

    def execute(self, statement, *values):
        with sqlite3.connect(self.data_dir / "trainops.sqlite3", timeout=20) as database:
            database.execute(statement, values)
        database.close()

    @property
    def address(self):
        return f"/operations/{self.operation}/live?have=progress:&points=0"

    def connect(self, address, who):
        """Send the request of an EventSource; return its socket."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        lines = [
            f"GET {address} HTTP/1.1", "Host: localhost", "Accept: text/event-stream",
            "Accept-Encoding: gzip", f"Cookie: sessionid={self.sessions.get(who, '')}", "", "",
        ]  # fmt: skip
        connection.sendall("\r\n".join(lines).encode())
        return connection


@contextmanager
def live_site(data_dir):
    site = LiveSite(data_dir)
    try:
        site.start()
        yield site
    finally:
        site.kill()


class Events:
    """Reads an event stream from its socket."""

    def __init__(self, connection):
        self.connection = connection
        self.file = connection.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()

    def next(self):
        """Return the next answer; None at the end of the stream."""
        for line in self.file:
            if line.startswith(b"data: "):
                return json.loads(line[6:])
            if line == b"0\r\n":  # the last chunk
                break
        return None

    def until_percent(self, percent):
        while (answer := self.next()) is not None:
            if answer["percent"] == percent:
                return answer
        raise AssertionError("the stream has ended")

    def close(self):
        self.file.close()
        self.connection.close()
