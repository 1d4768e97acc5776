"""A rolling upgrade: processes of the version before and of this one on one PostgreSQL and Redis.

Operations are submitted throughout. All of them complete with the result of an undisturbed run, and
every attempt that does not complete says why.
"""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from itertools import cycle

import pytest

from tests import versions
from tests.fixtures.released.make import BARE, CASES, RECIPES, waves
from tests.journey.stack import QUICK, ROOT, Stack
from tests.waiting import wait_until
from trainops.launch.servers import postgres_server, redis_server
from trainops.version import VERSION

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.whole]
CELERY = ("-m", "celery", "--app", "trainops.celery")
WORKER, BEAT = (*CELERY, "worker"), (*CELERY, "beat", "--pidfile=")
WEB = ("-m", "trainops.web", "--port", "0")
PREPARE = ("-m", "trainops.launch.prepare")
CONFIGS = {kind: config for name, (kind, config, _) in CASES.items() if name != "distributed"}
del CONFIGS["loop"]
CONFIGS["federated"] = {
    "recipe": "federated_digits", "parameters": {"hidden": 4}, "rounds": 6, "clients": 3,
    "local_epochs": 2, "batch_size": 32, "optimizer": "adam", "threads": 1,
    "server": {"strategy": "fedavgm"}, "checkpoint": {"every_client_epochs": 5, **BARE},
}  # fmt: skip
NUM_ACTIVE = 4  # operations that wait or run at any time
CONTRACT = "0999_contract_a_column"
MIGRATION = """\
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("operations", "{before}")]
    operations = [migrations.RunSQL("ALTER TABLE operations_operation DROP COLUMN num_hints")]
"""


# The example, which names no labels: other workers take nothing with this one.
HTTP_WORKER = """\
from examples import http_worker
call = http_worker.Server.call
def labelled(self, method, path, body=None, **more):
    body = body | {{"labels": [{name!r}]}} if path == "claim" else body
    return call(self, method, path, body, **more)
http_worker.Server.call = labelled
http_worker.main({name!r}, *{kinds})
"""


class Installation:
    """Processes of several versions with one data directory, one database and one broker."""

    def __init__(self, directory, database_url, broker_url):
        self.directory, self.data_dir = directory, directory / "var"
        self.own = {f"TRAINOPS_{name}": value for name, value in QUICK.items()} | {
            "TRAINOPS_DATA_DIR": str(self.data_dir),
            "TRAINOPS_DATABASE_URL": database_url,
            "TRAINOPS_BROKER_URL": broker_url,
            "TRAINOPS_ADMIN_PASSWORD": "x",
            "TRAINOPS_RECIPES": RECIPES,
            "TRAINOPS_WORKER_SLOTS": "2",
            "TRAINOPS_REREGISTRATION_CHECK_INTERVAL_SECONDS": "1",
        }
        self.processes, self.clients = [], []

    def run(self, tree, *arguments, **more):
        env = versions.environment(tree, **self.own, **more)
        return versions.run(tree, *arguments, env=env)

    def prepare(self, tree):
        done = self.run(tree, *PREPARE, "--url", "http://127.0.0.1:1")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def check(self, tree):
        done = self.run(tree, "-m", "trainops", "upgrade", "--check", "-o", "json")
        return done.returncode, json.loads(done.stdout or "null")

    def start(self, tree, name, *arguments, **more):
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=tree, stdout=log, stderr=log,
                env=versions.environment(tree, **self.own, **more), start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def web(self, tree, name):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = self.start(tree, name, "-m", "trainops.web", "--port", str(port))
        stack = Stack(self.data_dir, port, process)
        stack.sign_in()
        self.clients.append(stack.client)
        return stack

    def worker(self, tree, name, web):
        """Start a worker; return its process when the registry has it."""
        process = self.start(
            tree, name, *WORKER, "--hostname", f"{name}@here", "--loglevel", "INFO"
        )

        def is_registered():
            assert process.poll() is None, (self.directory / f"{name}.log").read_text()
            return f"{name}@here" in {each["worker_id"] for each in web.get("workers")}

        wait_until(is_registered)
        return process

    def compute_over_http(self, tree, web, configs):
        """Have a worker over HTTP of the version in a directory run an operation of each kind."""
        name = f"http-{tree.name}-{web.port}"
        made = web.post("tokens", {"name": name, "scope": "worker"})
        address = {"TRAINOPS_URL": web.url, "TRAINOPS_TOKEN": made["token"]}
        found = {}
        for kind, config in configs.items():
            body = {"kind": kind, "config": config, "queue": name}
            found[web.post("operations", body)["id"]] = kind
        code = HTTP_WORKER.format(name=name, kinds=sorted(configs))
        process = self.start(tree, name, "-c", code, **address)
        for operation_id in found:
            web.wait(operation_id, "COMPLETED")
        self.stop(process)
        return found

    def drain(self, web, name, process):
        """End a worker when what it runs is handed back, as an operator does it."""
        web.post(f"workers/{name}@here/drain")
        wait_until(lambda: web.get(f"workers/{name}@here")["num_running"] == 0)
        self.stop(process)

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) in (0, -signal.SIGTERM)

    def refuses(self, tree, *processes):
        """Return what each process prints that must not start."""
        found = []
        for process in processes:
            done = self.run(tree, *process)
            assert done.returncode != 0, done.stdout
            found.append(done.stdout + done.stderr)
        return found

    def end(self):
        for client in self.clients:
            client.close()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


class Load(threading.Thread):
    """Submits operations of each kind in turn, by each web in turn, so that some always wait."""

    def __init__(self, web, configs):
        super().__init__(daemon=True)
        self.webs, self.configs, self.ids = [web], configs, {}
        self.submitted = Counter()  # by port
        self.lock, self.is_over, self.error = threading.Lock(), threading.Event(), None
        self.start()

    def run(self):
        turns, active = cycle(self.configs), set()
        try:
            while not self.is_over.is_set():
                with self.lock:
                    web = self.webs[sum(self.submitted.values()) % len(self.webs)]
                    states = {each: web.get(f"operations/{each}")["state"] for each in active}
                    active = {each for each, state in states.items() if state != "COMPLETED"}
                    if len(active) < NUM_ACTIVE:
                        kind = next(turns)
                        operation_id = web.submit(kind=kind, **self.configs[kind])
                        active.add(operation_id)
                        self.ids[operation_id] = kind
                        self.submitted[web.port] += 1
                time.sleep(0.05)
        except Exception as error:  # noqa: BLE001 - of the test
            self.error = error

    def more(self, number=2):
        """Wait until N more operations were submitted by each web."""
        before = Counter(self.submitted)
        wait_until(lambda: self.error or all(
            self.submitted[web.port] >= before[web.port] + number for web in self.webs
        ))  # fmt: skip
        if self.error:
            raise self.error

    def use(self, *webs):
        with self.lock:
            self.webs = list(webs)

    def end(self):
        self.is_over.set()
        self.join(60)
        if self.error:
            raise self.error


def may_end(attempt):
    """Whether an attempt may end in this way, to be continued by another.

    A worker of 0.1.0 that stops while it claims an operation has no process for it any more.
    """
    end = (attempt["outcome"], attempt["reason"])
    is_known = end == ("failed", "PLATFORM_ERROR") and attempt["worker_id"].startswith("old-")
    return end == ("preempted", "SHUTDOWN") or is_known


def outcome(web, operation_id):
    operation = web.get(f"operations/{operation_id}")
    return operation["step"], web.artifacts(operation_id), web.curve(operation_id)


def contracted(directory):
    """Write this version with a further migration, which drops a column."""
    parts = ("apps", "trainops", "static", "templates", "docs", "pyproject.toml", "manage.py")
    for part in (*parts, "mkdocs.yml", "ARCHITECTURE.md", "README.md"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        directory.mkdir(exist_ok=True)
        copy(ROOT / part, directory / part)
    migrations = directory / "apps" / "operations" / "migrations"
    before = max(path.stem for path in migrations.glob("0*.py"))
    (migrations / f"{CONTRACT}.py").write_text(MIGRATION.format(before=before))
    return directory


@pytest.fixture
def old(tmp_path):
    return versions.export(versions.RELEASES[versions.LATEST], tmp_path / "old")


@pytest.fixture
def installation(tmp_path):
    with ExitStack() as stack:
        database = stack.enter_context(postgres_server())
        broker = stack.enter_context(redis_server())
        made = Installation(tmp_path, database, broker)
        stack.callback(made.end)
        yield made


def configs_of(kinds, web):
    """Return the configs, with a dataset that the first web has got."""
    response = web.client.post("datasets", files={"file": ("waves.parquet", waves())})
    dataset = response.json()["data"]["id"]
    backtest = {**CONFIGS["backtest"], "dataset": dataset}
    return {kind: backtest if kind == "backtest" else CONFIGS[kind] for kind in kinds}


class Upgrade:
    """The steps of a rolling upgrade. `is_whole`: with further processes, and wrong orders."""

    def __init__(self, installation, old, kinds):
        self.installation, self.old, self.new = installation, old, ROOT
        self.is_whole = len(kinds) > 1
        installation.prepare(old)
        self.web = installation.web(old, "web-old")
        self.workers = {"old-1": installation.worker(old, "old-1", self.web)}
        self.configs = configs_of(kinds, self.web)
        whole = {kind: self.web.submit(kind=kind, **each) for kind, each in self.configs.items()}
        for operation_id in whole.values():
            self.web.wait(operation_id, "COMPLETED")
        self.expected = {kind: outcome(self.web, each) for kind, each in whole.items()}
        if self.is_whole:
            self.beat = installation.start(old, "beat-old", *BEAT)
            self._worker(old, "old-2", self.web)
        self.load = Load(self.web, self.configs)
        self.load.more()

    def _worker(self, tree, name, web):
        self.workers[name] = self.installation.worker(tree, name, web)

    def check(self):
        if self.is_whole:
            refused = self.installation.refuses(self.new, WORKER, BEAT, WEB)
            assert all("migrations are missing" in each for each in refused), refused
        code, found = self.installation.check(self.new)
        assert (code, found["verdict"], found["contract"]) == (0, "rolling", {})
        assert found["workers"] == {versions.LATEST: len(self.workers)}
        assert found["running"] > 0

    def migrate(self):
        self.installation.prepare(self.new)
        self.load.more()
        if self.is_whole:
            code, found = self.installation.check(self.old)
            assert (code, found["verdict"]) == (0, "nothing to do")
            assert found["unknown"]

    def replace_a_worker(self):
        if self.is_whole:  # one that is started again in the meantime has the older version
            self._worker(self.old, "old-3", self.web)
        self._worker(self.new, "new-1", self.web)
        self.installation.drain(self.web, "old-1", self.workers.pop("old-1"))

    def add_web(self):
        """Start the new web next to the older one, and use both."""
        self.other = self.installation.web(self.new, "web-new")
        self.load.use(self.web, self.other)
        self.load.more()
        if self.is_whole:
            self._use_clients_and_workers_of_both()

    def _use_clients_and_workers_of_both(self):
        for tree, web in ((self.old, self.other), (self.new, self.web)):
            address = {"TRAINOPS_URL": web.url, "TRAINOPS_TOKEN": web.token}
            done = self.installation.run(tree, "-m", "trainops", "ls", "-o", "json", **address)
            assert done.returncode == 0, done.stderr
            self.load.ids |= self.installation.compute_over_http(tree, web, self.configs)

    def replace_the_rest(self):
        older = [self.workers.pop(each) for each in list(self.workers) if each != "new-1"]
        if self.is_whole:
            self._worker(self.new, "new-2", self.other)
        for process in older:  # in the midst of their operations
            self.installation.stop(process)
        self.load.use(self.other)
        self.installation.stop(self.web.process)
        self.load.more()
        if self.is_whole:
            self._replace_beat()

    def _replace_beat(self):
        beat = self.installation.start(self.new, "beat-new", *BEAT)
        self.installation.stop(self.beat)
        self.load.more()
        code, found = self.installation.check(self.new)
        assert (code, found["verdict"]) == (0, "nothing to do")
        assert found["workers"][VERSION] >= len(self.workers)
        assert not found["workers"].keys() - {VERSION, "unknown"}  # the example of 0.1.0
        assert beat.poll() is None

    def judge(self):
        """Compare every operation with the undisturbed one, and judge how attempts ended early."""
        self.load.end()
        for operation_id, kind in self.load.ids.items():
            self.other.wait(operation_id, "COMPLETED")
            assert outcome(self.other, operation_id) == self.expected[kind], (kind, operation_id)
            attempts = self.other.get(f"operations/{operation_id}/attempts")
            *stopped, last = sorted(attempts, key=lambda each: each["number"])
            assert last["outcome"] == "completed", last
            assert all(map(may_end, stopped)), stopped

    def contract(self, after):
        code, found = self.installation.check(after)
        assert (code, found["verdict"]) == (1, "stop first")
        assert list(found["contract"]) == [f"operations.{CONTRACT}"]
        self.installation.end()
        self.installation.prepare(after)
        for tree in (self.old, self.new):
            refused = self.installation.refuses(tree, WORKER, BEAT, WEB, PREPARE)
            assert all(CONTRACT in each for each in refused), refused


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(["backtest"], id="one kind"),
        pytest.param(sorted(CONFIGS), id="all kinds", marks=pytest.mark.exhaustive),
    ],
)
def test_a_rolling_upgrade_loses_no_operation(installation, old, tmp_path, kinds):
    upgrade = Upgrade(installation, old, kinds)
    upgrade.check()
    upgrade.migrate()
    upgrade.replace_a_worker()
    upgrade.add_web()
    upgrade.replace_the_rest()
    upgrade.judge()
    assert set(upgrade.load.ids.values()) == set(kinds)
    if upgrade.is_whole:
        upgrade.contract(contracted(tmp_path / "after"))
