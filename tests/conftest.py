import logging
import re
import socket
from collections import Counter, defaultdict
from pathlib import Path
from uuid import uuid4
from zlib import crc32

import pytest
from django.contrib.auth.models import User
from hypothesis import HealthCheck, settings

from apps.checkpoints import signing_keys
from apps.datasets import validation
from apps.datasets.tables import child
from apps.operations.attempts import remote_claims
from apps.operations.files import exchange
from apps.operations.scheduling import shares
from tests import confinement, emptying, storages, streamed
from tests.waiting import wait_until
from trainops.concurrency_limit import ServerBusy
from trainops.confined import calling
from trainops.launch.testing import DATABASE, HEAVY, LONG, QUICK

# An example may take long on a busy machine: no property of this project is about time.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
streamed.install()

TESTS = Path(__file__).parent
BROWSER = TESTS / "browser"
LONGEST = (  # files that take minutes: the first is begun first
    "operations/test_studies.py", "operations/test_clients.py", "workers/test_http_worker.py",
    "fuzz/test_requests.py", "ranks/test_lightning.py", "ranks/test_modules.py",
    "operations/test_exchange.py", "ranks/test_nodes.py", "cli/test_checkpoints.py",
)  # fmt: skip
MODULE_MARKS = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, unimported, most files of which no test is selected: imports take minutes."""
    selected = config.option.markexpr
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text("utf-8")
    if selected == QUICK:
        marks = MODULE_MARKS.search(text)
        is_left_out = bool(marks and "mark.slow" in marks[1])
    elif selected.startswith(f"({HEAVY})"):
        is_left_out = BROWSER not in collection_path.parents and "mark.journey" not in text
    else:
        is_left_out = selected.startswith(DATABASE) and "mark.database" not in text
    return is_left_out or None


@pytest.hookimpl(trylast=True)  # after the marks have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one case of each family of tests, of those that are not slow only in the quick set.

    All cases run with `--all`, and where pytest itself is given files. Families over the same cases
    have different ones, and what is marked `whole` all.
    """
    marks = config.option.markexpr
    # One of several processes; whole installations that take longest are too much at a time.
    if hasattr(config, "workerinput") and not marks.startswith(f"({HEAVY})"):
        _longest_files_first(items)
    if marks != QUICK and f"not {LONG}" not in marks:
        return
    families = defaultdict(list)
    for item in items:
        families[item.nodeid.partition("[")[0]].append(item)
    kept = {
        item
        for name, family in families.items()
        for item in (_one(name, family) if marks == QUICK or _is_slow(family) else family)
    }
    config.hook.pytest_deselected(items=[each for each in items if each not in kept])
    items[:] = [each for each in items if each in kept]


def _longest_files_first(items: list[pytest.Item]) -> None:
    """Have no process begin a long file when the others are at their end."""
    num_slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    ranks = {path: rank for rank, path in enumerate(map(TESTS.joinpath, LONGEST))}

    def place(item: pytest.Item) -> tuple[int, int, Path]:
        return ranks.get(item.path, len(ranks)), -num_slow[item.path], item.path

    items.sort(key=place)


def _one(name: str, family: list[pytest.Item]) -> list[pytest.Item]:
    return [family[crc32(name.encode()) % len(family)]]


def _is_slow(family: list[pytest.Item]) -> bool:
    is_whole = family[0].get_closest_marker("whole")
    return not is_whole and any(each.get_closest_marker("slow") for each in family)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup):
    emptying.keep_unchanged_rows()


@pytest.fixture(autouse=True)
def _no_messages(settings):
    """No broker runs in most tests: rows are looked at, not messages."""
    settings.DISPATCH_IS_ON = False


@pytest.fixture(autouse=True)
def _own_storage(settings):
    """Each test's database is new, and so is its storage: another's would be a foreign one."""
    storages.place(settings, settings.DATA_DIR / "storages" / uuid4().hex)


@pytest.fixture(autouse=True)
def _no_hours_remembered():
    """The hours that shares remember are those of the database of another test."""
    shares.past_hours.cache_clear()


@pytest.fixture(autouse=True)
def _no_look_at_datasets_remembered():
    """What a process last saw of the dataset storage is that of another test."""
    remote_claims.DATASETS.forget()


@pytest.fixture(autouse=True)
def _no_keys_remembered():
    """The signing keys that a process remembers are those of the database of another test."""
    signing_keys.forget()


@pytest.fixture(autouse=True)
def _quick(settings):
    """Slow hashes and a list of all static files are good for nothing that is tested here."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.WHITENOISE_AUTOREFRESH = True  # looks for a file when it is asked for


@pytest.fixture(autouse=True)
def _same_log_handlers():
    """A command sets Django up again: its log would stay at a stream that the test has closed."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers


@pytest.fixture(autouse=True)
def _no_imports_of_torch(monkeypatch):
    """Forked processes answer the requests of `exchange`; with `own_process` the real ones do."""
    monkeypatch.setattr(exchange, "call", confinement.call)


@pytest.fixture
def own_process(_no_imports_of_torch, monkeypatch):
    monkeypatch.setattr(exchange, "call", calling.call)


@pytest.fixture
def person(db):
    return User.objects.create_user("ana", password="correct horse")


@pytest.fixture
def live_server(live_server, transactional_db, monkeypatch):
    """The live server; the test ends only after every connection to it was served.

    A request outlives a client that was killed: while the tables are emptied, the two would wait
    for each other's locks, and afterwards it would fail in the middle of the next test.
    """
    httpd, served = live_server.thread.httpd, set()
    begin, close = httpd.process_request, httpd.close_request

    def counted_begin(connection, address):
        served.add(connection)
        begin(connection, address)

    def counted_close(connection):
        close(connection)
        served.discard(connection)

    monkeypatch.setattr(httpd, "process_request", counted_begin)
    monkeypatch.setattr(httpd, "close_request", counted_close)
    yield live_server
    # Connections are accepted in order: once this one was, none that came before it waits.
    with socket.create_connection(httpd.server_address) as last:
        last.shutdown(socket.SHUT_WR)
        last.recv(1)
    wait_until(lambda: not served)


@pytest.fixture
def in_process(monkeypatch):
    """Reads uploads in this process: the same code, without half a second to start another."""
    monkeypatch.setattr(validation, "call", lambda module, request, limits: child.answer(request))


@pytest.fixture
def busy_once(monkeypatch):
    """The first table that is to be read finds others being read."""
    normalise, calls = validation.normalise, []

    def called(*given, **named):
        calls.append(given)
        if len(calls) == 1:
            raise ServerBusy
        return normalise(*given, **named)

    monkeypatch.setattr(validation, "normalise", called)
    return calls
