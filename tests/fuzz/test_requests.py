"""No request, whatever it holds and whoever sends it, ends in an error of the server.

Values are drawn; every address, parameter, field and header of the project is found in its code.
"""

import json
import random
import time
from urllib.parse import quote, urlencode

import psutil
import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from apps.datasets import validation
from apps.operations.files import exchange
from apps.workers import registry
from tests.api.saved import saved
from tests.fuzz.addresses import (
    HEADERS,
    addresses,
    body_names,
    form_names,
    query_names,
    takes_files,
)
from tests.fuzz.values import BY_NAME, FILES, NESTED, STRINGS, VALUES, WITH_NUL
from tests.pages import making
from tests.thinning import some_of
from trainops.confined.calling import ConfinedProcessFailed
from trainops.http.models import Token, TokenScope
from trainops.recipes import recipes
from trainops.statement_timeout import unlimited

pytestmark = [pytest.mark.django_db, pytest.mark.database, pytest.mark.postgres, pytest.mark.slow]
MAX_SECONDS, MAX_BYTES = 20, 400 * 2**20
JSON = "application/json"
LEAVING = ("/logout/", "/account/password", "/admin/logout/")


@pytest.fixture(autouse=True)
def _nothing_is_read(monkeypatch):
    """Processes that read files have tests of their own."""

    def call(*_):
        raise ConfinedProcessFailed("It was not read.")

    monkeypatch.setattr(exchange, "call", call)
    monkeypatch.setattr(validation, "call", call)


@pytest.fixture(autouse=True)
def _no_limit_between_statements(db):
    """All requests of a test share one transaction, idle while a busy machine computes them.

    Each request has a limit of its own instead (MAX_SECONDS).
    """
    with unlimited():
        yield


@pytest.fixture
def known(db, settings, tmp_path):
    """What is there, by the names of arguments."""
    settings.CHECKPOINT_ROOT, settings.DATA_DIR = tmp_path / "checkpoints", tmp_path / "var"
    owner = making.person("otto", "operator")
    operation = making.operation(owner, "CANCELLED")
    checkpoint = saved(operation)
    registry.register(worker_id="worker-9", worker_type="http", kinds=["training"])
    return {
        "operation_id": operation.pk, "checkpoint_id": checkpoint.pk, "worker_id": "worker-9",
        "name": "model.pt", "object_id": operation.pk, "step": 10, "which": "last",
        "action": "cancel", "form": "json", "app_label": "operations",
    }  # fmt: skip


@pytest.fixture
def people(known):
    """Clients by who they are; a session's, and tokens'."""
    return {name: client() for name, client in CLIENTS.items()}


def session_of(role, **more):
    def client():
        user = making.person(f"{role}-session", role)
        User.objects.filter(pk=user.pk).update(**more)
        signed_in = Client(raise_request_exception=False)
        signed_in.force_login(user)
        return signed_in

    return client


def token_of(role, scope):
    def client():
        token = Token.objects.create(making.person(f"{role}-{scope}", role), scope=scope)[1]
        headers = {"authorization": f"Bearer {token}"}
        return Client(raise_request_exception=False, headers=headers)

    return client


CLIENTS = {
    "nobody": lambda: Client(raise_request_exception=False),
    "viewer": session_of("viewer"),
    "operator": session_of("operator"),
    "superuser": session_of("admin", is_staff=True, is_superuser=True),
    "token": token_of("operator", TokenScope.USER),
    "worker": token_of("admin", TokenScope.WORKER),
}


class Fuzzer:
    def __init__(self, seed, known, people):
        self.draw, self.known, self.people = random.Random(seed), known, people  # noqa: S311
        self.wrong = []

    def ask(self, address, who, method, **options):
        path = address.template.format(**{name: self.argument(name) for name in address.arguments})
        names = query_names(address.template)
        chosen = self.draw.choices(names, k=2) if address.is_api else names
        query = self.fields(chosen if self.draw.random() < 0.8 else [])
        began = time.monotonic()
        response = self.people[who].generic(method, f"{path}?{query}", **options)
        took = time.monotonic() - began
        said = [who, method, path[:300], query[:300], str(options)[:500]]
        if response.status_code >= 500 and not self.is_reported(response):
            self.wrong.append((response.status_code, *said, response.content[:300]))
        elif took > MAX_SECONDS:
            self.wrong.append((took, *said))
        elif address.is_api and not is_enveloped(response):
            self.wrong.append(("no envelope", *said, response.content[:300]))

    def is_reported(self, response):
        """Whether it says that it passes; no broker is there in these tests."""
        is_ready = b"NOT_READY" not in response.content
        return response.status_code == 503 and ("Retry-After" in response or not is_ready)

    def argument(self, name):
        if self.draw.random() < 0.6 and name in self.known:
            return quote(str(self.known[name]), safe="")
        short = [each for each in STRINGS if len(each) < 6000]
        value = self.draw.choice(self.draw.choice([short, WITH_NUL]))
        return quote(value, safe="") or "x"

    def fields(self, names):
        """Fields as in a query or a form; a value without NUL lets the others be read."""
        values = self.draw.choice([WITH_NUL, STRINGS, STRINGS, STRINGS])
        pairs = [(name, self.draw.choice([*BY_NAME.get(name, []), *values])) for name in names]
        return urlencode([*pairs, *pairs[: self.draw.choice([0, 0, 0, 1])]])

    def header(self):
        name, value = self.draw.choice(HEADERS), self.draw.choice(STRINGS)[:4000]
        if name == "Authorization" and self.draw.random() < 0.7:
            value = self.draw.choice(["Bearer ", "Basic ", "Token "]) + value
        if name == "Cookie":
            value = self.draw.choice(["sessionid=", "csrftoken=", 'sessionid="\\000"', ""]) + value
        as_sent = value.encode("utf-8", "replace").decode("latin1")
        return {name: as_sent} if name != "Content-Length" else {}

    def body(self, address):
        names = body_names(address.template)
        chosen = self.draw.choice([names, self.draw.choices(names, k=2)])
        given = {name: self.value(2, names) for name in chosen}
        given |= self.draw.choice([{}, {"kind": "training", "config": self.value(2, names)}])
        text = json.dumps(self.draw.choice([given, given, given, self.value(1, names)]))
        return self.draw.choice([text, text, text, self.draw.choice(NESTED)])

    def form_with_file(self, address):
        """A form as a browser sends it; often all of it but the file is right."""
        operation = json.dumps({"kind": "training", "config": recipes()["digits"].example})
        form = {"operation": operation} if "import" in address.template else {}
        for name in self.draw.choices(body_names(address.template), k=self.draw.choice([0, 0, 2])):
            form[name] = self.draw.choice(STRINGS)
        form["file"] = SimpleUploadedFile("x.csv", self.draw.choice(FILES))
        return {"data": encode_multipart(BOUNDARY, form), "content_type": MULTIPART_CONTENT}

    def value(self, depth, names):
        if depth and self.draw.random() < 0.4:
            chosen = self.draw.choices(names, k=3)
            return {name: self.value(depth - 1, names) for name in chosen}
        return self.draw.choice(VALUES)


def is_enveloped(response):
    kind = response.get("Content-Type", "")
    if response.status_code < 400 or not kind.startswith(JSON):
        return response.status_code < 400
    return set(response.json()) >= {"success", "error"}


def fuzz(seed, known, people, times):
    fuzzer = Fuzzer(seed, known, people)
    process = psutil.Process()
    for address in addresses():
        before = process.memory_info().rss
        for _ in range(times):
            who = fuzzer.draw.choice([*people])
            if address.template in LEAVING:
                who = "nobody"
            fuzzer.ask(address, who, "GET", headers=fuzzer.header())
            method = fuzzer.draw.choice(["POST", "POST", "POST", "DELETE", "PUT", "PATCH"])
            if address.is_api:
                options = {"data": fuzzer.body(address), "content_type": JSON}
            else:
                form = fuzzer.fields(form_names())
                kind = "application/x-www-form-urlencoded"
                options = {"data": form, "content_type": kind}
            fuzzer.ask(address, who, method, headers=fuzzer.header(), **options)
        assert process.memory_info().rss - before < MAX_BYTES, address
    assert not fuzzer.wrong, "\n".join(map(str, fuzzer.wrong[:20]))


@pytest.mark.parametrize("seed", some_of([1, 2], every=2))
def test_no_request_ends_in_an_error_of_the_server(known, people, seed):
    fuzz(seed, known, people, times=1)


def test_no_file_ends_in_an_error_of_the_server(known, people):
    """What the web process itself makes of it, before a confined process reads it."""
    fuzzer = Fuzzer(1, known, people)
    uploads = [each for each in addresses() if takes_files(each.template)]
    assert len(uploads) >= 2
    for address in uploads:
        for _ in range(40):
            fuzzer.ask(address, "operator", "POST", **fuzzer.form_with_file(address))
            fuzzer.ask(address, "token", "POST", **fuzzer.form_with_file(address))
    assert not fuzzer.wrong, "\n".join(map(str, fuzzer.wrong[:20]))


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 20))
def test_nor_does_any_of_thousands(known, people, seed):
    fuzz(seed, known, people, times=30)
