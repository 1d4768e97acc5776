"""A server in place of W&B's, for what `wandb sync` uploads to it."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
PLACES = ("HOME", "TMPDIR", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")


@dataclass
class Run:
    """A run as it was uploaded last: a run without resume replaces an earlier one."""

    description: dict  # variables of the first request
    config: dict = field(default_factory=dict)
    lines: dict[int, dict] = field(default_factory=dict)  # the history, by offset
    exit_code: int | None = None

    @property
    def rows(self):
        return [self.lines[offset] for offset in sorted(self.lines)]


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs: dict[str, Run] = {}
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/graphql":
            self._answer({"data": self._graphql(json.loads(body))})
        elif self.path.endswith("/file_stream"):
            self._store(self.path.split("/")[-2], json.loads(body))
            self._answer({})
        else:
            self._answer({})  # a file of the run

    def do_PUT(self):
        self.do_POST()

    def _graphql(self, request):
        given = request["variables"]
        match request["operationName"]:
            case "UpsertBucket":
                return {"upsertBucket": {"bucket": self._upserted(given), "inserted": True}}
            case "CreateRunFiles":
                files = [
                    {"name": name, "uploadUrl": f"{self.server.address}/{name}"}
                    for name in given["files"]
                ]
                created = {"runID": given["run"], "uploadHeaders": [], "files": files}
                return {"createRunFiles": created}
            case _:
                return {}

    def _upserted(self, given):
        name = given["name"]
        if given["entity"] is None:  # the first request of an upload
            self.server.runs[name] = Run(given)
        if given["config"]:
            config = json.loads(given["config"])
            self.server.runs[name].config = {key: each["value"] for key, each in config.items()}
        project = {"id": "p", "name": given["project"], "entity": {"id": "e", "name": "ana"}}
        return {
            "id": name, "name": name, "displayName": given["displayName"], "description": None,
            "config": None, "sweepName": None, "historyLineCount": 0, "project": project,
        }  # fmt: skip

    def _store(self, name, given):
        run = self.server.runs[name]
        history = given.get("files", {}).get("wandb-history.jsonl", {"offset": 0, "content": []})
        for number, line in enumerate(history["content"]):
            run.lines[history["offset"] + number] = json.loads(line)
        if given.get("complete"):
            run.exit_code = given["exitcode"]

    def _answer(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def sync(server: Server, directory: Path, scratch: Path) -> str:
    """Upload what `wandb sync` finds to be new in a directory of runs; return its output."""
    scratch.mkdir(parents=True, exist_ok=True)
    own = {name: os.environ[name] for name in KEPT if name in os.environ}
    chosen = {
        "WANDB_BASE_URL": server.address, "WANDB_API_KEY": "a" * 40,
        "WANDB_ERROR_REPORTING": "false",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "wandb", "sync", "--yes", *map(str, directory.glob("offline-*"))],
        env=own | chosen | dict.fromkeys(PLACES, str(scratch)),
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr
