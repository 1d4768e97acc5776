"""A worker that needs a server's address and a worker token, and nothing else: docs/workers.md.

    TRAINOPS_URL=http://server:8000 TRAINOPS_TOKEN=… python -m examples.http_worker box-1 training

It runs one operation at a time. A kill, or a lease that cannot be renewed, ends the whole process:
run it under something that starts it again.
"""

import base64
import os
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import httpx  # pip install httpx
import torch

from trainops import worker_end
from trainops.datasets.location import Location
from trainops.kind import KINDS
from trainops.process.process_use import ProcessUse
from trainops.runtime import lossless, reproducibility
from trainops.runtime.checkpoint.store import Candidate, CheckpointPolicy, CheckpointStore
from trainops.runtime.checkpointer import JobError
from trainops.runtime.errors import LeaseLost, NotExact
from trainops.runtime.ledger import Entry, MemoryLedger
from trainops.runtime.loop import Directive, Failed, Stopped, Succeeded, run
from trainops.version import VERSION

IDLE_SECONDS, REPORT_SECONDS = 2.0, 1.0
LEAST_SECONDS = 10.0  # before its end it asks for no more work
MAX_ITEMS, MAX_MEDIA_CHARS = 64, 3 * 2**20  # of what a recipe logged, in one request
CACHE_BYTES = 50 * 10**9  # of files of registered buckets


class Server:
    def __init__(self, url, token, worker_id):
        headers = {"Authorization": f"Bearer {token}"}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=20, follow_redirects=True)
        self.root = f"/api/v1/workers/{worker_id}"

    def call(self, method, path, body=None, **options):
        """Return the answer's data. Raises LeaseLost where the attempt is not ours any more."""
        answer = self.client.request(method, f"{self.root}/{path}", json=body, **options)
        if answer.status_code == httpx.codes.CONFLICT:
            raise LeaseLost(answer.text)
        return answer.raise_for_status().json()["data"]

    def download(self, path, target):
        with self.client.stream("GET", f"{self.root}/{path}") as answer, target.open("wb") as file:
            answer.raise_for_status()
            file.writelines(answer.iter_bytes())


class Attempt:
    """One claimed attempt: what the loop calls its supervisor."""

    def __init__(self, server, claimed, root):
        self.server, self.claimed, self.root = server, claimed, root
        self.path = f"attempts/{claimed['operation_id']}/{claimed['attempt']}"
        self.directive, self.progress, self.points = Directive.PROCEED, None, deque()
        self.media = deque()  # what the recipe logged besides numbers
        self.committed, self.sending, self.is_over = set(), threading.Lock(), threading.Event()
        self.began_at = self.renewed_at = time.monotonic()
        self.use = ProcessUse(os.getpid())
        self.thread = threading.Thread(target=self._keep_the_lease, daemon=True)
        self.thread.start()

    def call(self, what, body=None, method="POST", **options):
        """Call about the attempt; that it is answered renews the lease."""
        asked_at = time.monotonic()
        answer = self.server.call(method, f"{self.path}/{what}", body, **options)
        self.renewed_at = max(self.renewed_at, asked_at)
        return self._obey(answer)

    def download(self, what, target):
        asked_at = time.monotonic()
        self.server.download(f"{self.path}/{what}", target)
        self.renewed_at = max(self.renewed_at, asked_at)

    def _say_alive(self):
        """Renew the lease while there is no progress to tell of: inputs arrive, a job is built."""
        longest = self.claimed["config"]["limits"]["stall_timeout_seconds"]
        if time.monotonic() - self.began_at > longest:
            return  # it hangs: the lease is left to run out
        mine = {name: self.claimed[name] for name in ("operation_id", "attempt")}
        asked_at = time.monotonic()
        (order,) = self.server.call("POST", "heartbeat", {"running": [mine]})["orders"]
        if order["directive"] == "stop":
            raise LeaseLost(order["reason"])
        self.renewed_at = max(self.renewed_at, asked_at)
        self._obey(order)

    def _obey(self, answer):
        if answer.get("directive") == "kill":
            os._exit(9)
        wanted = {"cancel": Directive.CANCEL, "preempt": Directive.PREEMPT}
        self.directive = wanted.get(answer.get("directive"), self.directive)
        return answer

    def _keep_the_lease(self):
        """Report in the background; without an answer for two thirds of a lease, end at once."""
        while not self.is_over.wait(REPORT_SECONDS):
            try:
                self.send_progress()
            except LeaseLost:
                os._exit(1)  # another attempt owns the operation
            except httpx.HTTPError as error:
                print(f"no answer: {error}", file=sys.stderr)
            if time.monotonic() - self.renewed_at > self.claimed["lease_seconds"] * 2 / 3:
                os._exit(1)

    def send_progress(self):
        with self.sending:
            if self.is_over.is_set():  # it ended while we waited
                return
            progress = self.progress
            if progress is None:
                self._say_alive()
                return
            rest = len(self.media)  # what comes meanwhile is for the next report
            while rest > 0:
                items = self._next_media(rest)
                self.call("media", {"items": items})
                rest -= len(items)
                for _ in items:
                    self.media.popleft()
            for step, at, values in self.use.points(progress.step):  # curves of CPU and memory
                moment = datetime.fromtimestamp(at, UTC).isoformat()
                self.points.append({"step": step, "at": moment, "metrics": dict(values)})
            points = [*self.points]
            step, total, place = progress.step, progress.total_steps, progress.place
            body = {"step": step, "total_steps": total, "place": place, "points": points}
            self.call("progress", body)
            for _ in points:  # they are durable now; what came meanwhile is for the next report
                self.points.popleft()

    def _next_media(self, number):
        """Return items for one request: this number, or as many as it may have."""
        items, size = [], 0
        for each in [*self.media][: min(number, MAX_ITEMS)]:
            size += len(each["content"])
            if items and size > MAX_MEDIA_CHARS:
                break
            items.append(each)
        return items

    def restored(self, receipt):
        place = {"step": receipt.step, "measured_to": receipt.measured_to}
        sent = receipt.to_json()
        if not self.claimed.get("accepts_uncertain"):  # a server of an earlier version refuses it
            sent.pop("uncertain", None)
        self.call("restored", {**place, "receipt": sent})

    def corrupted(self, candidate, error):
        checkpoint_id = next(
            each["checkpoint_id"] for each in self.claimed["checkpoints"]
            if each["directory"] == candidate.path.name
        )  # fmt: skip
        damage = {"missing": error.missing, "altered": error.altered}
        self.call("damaged", {"checkpoint_id": checkpoint_id, **damage})

    def report(self, progress):
        at = datetime.now(UTC).isoformat()  # noqa: TID251 - an example stands by itself
        for each in progress.media:
            content = base64.b64encode(each.content).decode()
            self.media.append({**asdict(each), "at": at, "content": content})
        if progress.metrics:
            metrics = {name: _number(value) for name, value in progress.metrics.items()}
            self.points.append({"step": progress.step, "at": at, "metrics": metrics})
        self.progress = progress
        return self.directive

    def checkpointed(self, checkpoint):
        """Send the points before it, then the files that are new with it; then commit all."""
        self.send_progress()
        opened = {"type": str(checkpoint.type), "step": checkpoint.step}
        directory = self.call("checkpoints", opened)["directory"]
        files = []
        for each in checkpoint.artifacts:
            home = each.home if each.home in self.committed else ""
            files.append({"name": each.name, "size_bytes": each.size_bytes,
                          "blake3": each.blake3, "home": home})  # fmt: skip
            if not home:
                self._send(directory, checkpoint.path / each.name)
        body = {"files": files, "environment": dict(checkpoint.environment)}
        try:
            self.call(f"checkpoints/{directory}/commit", body)
        except httpx.HTTPStatusError as refusal:
            error = refusal.response.json()["error"]
            if error["code"] != "HOME_GONE":
                raise
            for name in error["details"]["names"]:
                self._send(directory, checkpoint.path / name)
            self.call(f"checkpoints/{directory}/commit", body)
        if directory == checkpoint.path.name:  # else it has another name there
            self.committed.add(directory)

    def _send(self, directory, file):
        path = f"checkpoints/{directory}/files/{file.name}"
        self.call(path, method="PUT", content=file.read_bytes())

    def save_failed(self, error):
        print(error, file=sys.stderr)

    def end(self, outcome, **more):
        self.is_over.set()
        with self.sending:
            self.call("end", {"outcome": outcome, **more})


class Ledger(MemoryLedger):
    """The operation's ledger: entries are durable at the server before the run continues."""

    def __init__(self, attempt, sent):
        entries = (Entry(**entry) for entry in sent["entries"])
        super().__init__(entries, secret=bytes.fromhex(sent["secret"]), is_durable=True)
        self.attempt = attempt

    def append(self, entries):
        self.attempt.call("ledger", {"entries": [asdict(entry) for entry in entries]})
        super().append(entries)


def work(server, claimed, root):
    """Run one attempt to its end."""
    attempt = Attempt(server, claimed, root)
    engine = KINDS[claimed["kind"]]
    config = engine.parse_config(claimed["config"])
    reproducibility.set_determinism(config.deterministic, config.threads)
    inputs = {each["name"]: _input(attempt, each) for each in claimed["inputs"]}
    identity = {name: claimed[name] for name in ("operation_id", "attempt", "kind", "config_hash")}
    own = root / claimed["operation_id"]
    store = CheckpointStore(
        own,
        identity=identity,
        candidates=[_candidate(attempt, each, own) for each in claimed["checkpoints"]],
    )
    ledger = Ledger(attempt, claimed["ledger"]) if claimed["ledger"] else None
    saving = config.checkpoint
    policy = CheckpointPolicy(
        every_steps=saving.every_steps, every_seconds=saving.every_seconds,
        least_seconds=saving.least_seconds,
    )  # fmt: skip
    try:
        outcome = run(
            engine.job_factory(config, inputs, ledger),
            seed=config.seed, store=store, policy=policy, supervisor=attempt,
            requires_exact=claimed["requires_exact"],
        )  # fmt: skip
    except LeaseLost:
        raise  # it ends the process
    except Exception as error:  # the machinery's: the platform tries again elsewhere
        outcome = Failed(error)
    attempt.send_progress()
    match outcome:
        case Succeeded(result=result):
            attempt.end("completed", result=lossless.encode(dict(result)))
        case Stopped():
            attempt.end("cancelled")
        case Failed(error=error):
            trace = "".join(traceback.format_exception(error))[-20_000:]
            code = "JOB_ERROR" if isinstance(error, JobError | ValueError) else "PLATFORM_ERROR"
            code = "NOT_EXACT" if isinstance(error, NotExact) else code
            failure = {
                "code": code,
                "message": f"{type(error).__name__}: {error}",
                "traceback": trace,
            }
            attempt.end("failed", error=failure)


def _candidate(attempt, described, root):
    """Download a checkpoint; whether it is whole, the store finds out by its digests."""
    directory = root / described["directory"]
    directory.mkdir(parents=True, exist_ok=True)
    for name in ["manifest.json", *(each["name"] for each in described["files"])]:
        path = f"files/{described['checkpoint_id']}/{name}"
        if not (directory / name).exists():
            try:
                attempt.download(path, directory / name)
            except (LeaseLost, httpx.HTTPStatusError):  # damaged there: an older one is tried
                (directory / name).unlink(missing_ok=True)
    attempt.committed.add(directory.name)
    return Candidate(directory, described["manifest_digest"])


def _input(attempt, described):
    if described["type"] == "model":
        return _candidate(attempt, described["checkpoint"], attempt.root / described["name"]).path
    path = attempt.root / f"{described['blake3']}.parquet"
    if not path.exists():
        attempt.download(f"inputs/{described['name']}", path)
    if described["type"] == "directory":
        return _location(attempt, described, path).write(attempt.root)
    return path


def _location(attempt, described, manifest):
    name, place, changed_ns = described["name"], described["path"], described["changed_ns"]
    if "://" in place:
        cache = attempt.root / "prefixes"
        return Location.of_prefix(name, manifest, changed_ns, place, cache, CACHE_BYTES)
    return Location(name, place, str(manifest), changed_ns)


def _number(value):
    texts = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return texts.get(str(float(value)), float(value))


def main(worker_id, *kinds):
    """Claim and run; until TRAINOPS_WORKER_UNTIL, or TRAINOPS_WORKER_IDLE_EXIT without work."""
    ends_at = worker_end.ends_at(os.environ, now=time.time())
    idle_exit = worker_end.idle_exit_seconds(os.environ)
    server = Server(os.environ["TRAINOPS_URL"], os.environ["TRAINOPS_TOKEN"], worker_id)
    worker = {"worker_id": worker_id, "worker_type": "example", "kinds": list(kinds)}
    worker["capabilities"] = {"trainops": VERSION, "torch": str(torch.__version__)}
    if ends_at is not None:  # the server sends `preempt` in time
        worker["ends_in_seconds"] = max(0.0, ends_at - time.time())
    worker["idle_exit_seconds"] = idle_exit
    server.client.post("/api/v1/workers/register", json=worker).raise_for_status()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    offer = {"kinds": list(kinds), "memory_bytes": memory, "disk_bytes": 2**50}
    worked_at = time.monotonic()
    while not _is_over(ends_at, idle_exit, worked_at):
        claimed = server.call("POST", "claim", offer)["claimed"]
        if claimed is None:
            time.sleep(IDLE_SECONDS)
            continue
        with tempfile.TemporaryDirectory() as root:
            work(server, claimed, Path(root))
        worked_at = time.monotonic()
    server.client.delete(server.root).raise_for_status()


def _is_over(ends_at, idle_exit, worked_at):
    is_late = ends_at is not None and time.time() + LEAST_SECONDS > ends_at
    return is_late or (idle_exit is not None and time.monotonic() - worked_at > idle_exit)


if __name__ == "__main__":
    main(*sys.argv[1:])
