"""An HTTP proxy before an object store that fails as object stores do: armed, so many times."""

import http.client
import math
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REFUSALS = {
    "500": (500, "InternalError", "We encountered an internal error."),
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "expired": (403, "ExpiredToken", "The provided token has expired."),
}
FAULTS = (*REFUSALS, "stall", "cut_upload", "cut_download", "completed_before")
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


@dataclass
class Armed:
    fault: str
    times: float
    methods: tuple[str, ...]
    part: str  # of the path


@dataclass
class HttpProxy:
    """Forwards 127.0.0.1:`port`; each armed fault meets so many of the requests it is for."""

    target: int
    port: int = 0
    armed: Armed | None = None
    num_failed: int = 0
    seen: list[tuple[str, str]] = field(default_factory=list)  # what went through, in its order
    released: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(
        self,
        fault: str,
        times: float = math.inf,
        *,
        methods: tuple[str, ...] = ("PUT", "POST"),
        part: str = "",
    ) -> None:
        assert fault in FAULTS
        with self._lock:
            self.num_failed = 0
            self.armed = Armed(fault, times, methods, part)

    def disarm(self) -> None:
        with self._lock:
            self.armed = None
        self.released.set()
        self.released = threading.Event()

    def fault_for(self, method: str, path: str) -> str:
        with self._lock:
            armed = self.armed
            if armed and method in armed.methods and armed.part in path and armed.times > 0:
                armed.times -= 1
                self.num_failed += 1
                return armed.fault
            self.seen.append((method, path.partition("?")[0]))
            return ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: HttpProxy

    def do_GET(self) -> None:
        fault = self.proxy.fault_for(self.command, self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if fault == "cut_upload":
            self.rfile.read(length // 2)
            self._reset()
            return
        body = self.rfile.read(length)
        if fault in REFUSALS:
            self._refuse(*REFUSALS[fault])
        elif fault == "stall":
            self.proxy.released.wait(60)
            self._reset()
        else:
            self._forward(body, fault)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the library's names

    def _forward(self, body: bytes, fault: str) -> None:
        line = http.client.HTTPConnection("127.0.0.1", self.proxy.target, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
        try:
            line.request(self.command, self.path, body, headers)
            response = line.getresponse()
            content = response.read()
        finally:
            line.close()
        if fault == "completed_before":  # as S3 answers the second request to complete an upload
            self._refuse(404, "NoSuchUpload", "The specified upload does not exist.")
            return
        is_cut = fault == "cut_download"
        kept = {k: v for k, v in response.getheaders() if k.lower() not in HOP_BY_HOP}
        length = response.getheader("Content-Length") or len(content)
        self._answer(response.status, content[: len(content) // 2] if is_cut else content,
                     kept | {"Content-Length": str(length)})  # fmt: skip
        if is_cut:
            self._reset()

    def _refuse(self, status: int, code: str, message: str) -> None:
        content = (
            f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        ).encode()
        headers = {"Content-Length": str(len(content)), "Content-Type": "application/xml"}
        self._answer(status, content, headers)

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _reset(self) -> None:
        """Cut the line without goodbye."""
        self.close_connection = True
        with suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """What it did, the tests ask."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Lines that are cut are its business."""


@contextmanager
def http_proxy(target: int) -> Iterator[HttpProxy]:
    proxy = HttpProxy(target)
    handler = type("Bound", (Handler,), {"proxy": proxy})
    with Server(("127.0.0.1", 0), handler) as server:
        proxy.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.released.set()
            server.shutdown()
            thread.join(5)
