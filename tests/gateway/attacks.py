"""What one hostile client does to a server, from an address of its own, until it is stopped."""

import base64
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

from tests.journey.stack import ROOT

HOSTILE = "127.0.0.2"  # the others come from 127.0.0.1
MIB = 1024**2


class Attacker:
    def __init__(self, port, tokens, operation_id):
        self.port, self.tokens, self.operation_id = port, tokens, operation_id

    def connect(self):
        return socket.create_connection(
            ("127.0.0.1", self.port), timeout=5, source_address=(HOSTILE, 0)
        )

    def head(self, method, path, *headers, token=None):
        if token:
            headers = (f"Authorization: Bearer {self.tokens[token]}", *headers)
        return "\r\n".join(
            [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
        ).encode()

    def post(self, path, body, *headers, token=None):
        length = f"Content-Length: {len(body)}"
        kind = "Content-Type: application/json"
        self.send(self.head("POST", path, kind, length, *headers, token=token), body)

    def send(self, *parts):
        """Send a request and read the beginning of its response."""
        with suppress(OSError), self.connect() as connection:
            connection.settimeout(60)
            for part in parts:
                connection.sendall(part)
            connection.recv(4096)

    def keep_connections(self, num, each_second):
        """Hold so many connections; do something with each of them every second."""
        connections = []
        while True:
            with suppress(OSError):
                while len(connections) < num:
                    connection = self.connect()
                    connections.append(connection)
                    each_second(connection, is_new=True)
            for connection in [*connections]:
                try:
                    each_second(connection, is_new=False)
                except OSError:
                    connections.remove(connection)
            time.sleep(1)

    def repeat(self, what):
        while True:
            what()
            time.sleep(0.01)

    # Each of the following is one attack, in one thread.

    def silent_connections(self):
        self.keep_connections(300, lambda connection, is_new: None)

    def half_headers(self):
        def send(connection, *, is_new):
            connection.sendall(b"GET / HTTP/1.1\r\n" if is_new else b"X")

        self.keep_connections(100, send)

    def slow_bodies(self):
        head = self.head("POST", "/api/v1/tokens", "Content-Length: 60000")

        def send(connection, *, is_new):
            connection.sendall(head if is_new else b"x")

        self.keep_connections(150, send)

    def slow_uploads(self):
        head = self.head("POST", "/api/v1/datasets", "Content-Length: 99999999", token="operator")

        def send(connection, *, is_new):
            connection.sendall(head if is_new else b"x")

        self.keep_connections(50, send)

    def unread_responses(self):
        head = self.head("GET", "/api/v1/operations?limit=500", token="viewer")

        def send(connection, *, is_new):
            connection.settimeout(0.01)
            with suppress(TimeoutError):
                connection.sendall(head)

        self.keep_connections(100, send)

    def exports(self):
        path = f"/api/v1/operations/{self.operation_id}/export"
        self.repeat(lambda: self.send(self.head("GET", path, token="viewer")))

    def lists(self):
        self.repeat(
            lambda: self.send(self.head("GET", "/api/v1/operations?limit=500", token="viewer"))
        )

    def unknown_fields(self):
        body = json.dumps({f"field{number}": 1 for number in range(4000)}).encode()
        self.repeat(lambda: self.post("/api/v1/tokens", body))

    def unknown_fields_of_an_operator(self):
        config = {f"field{number}": 1 for number in range(200_000)}
        body = json.dumps({"kind": "training", "config": config}).encode()
        self.repeat(lambda: self.post("/api/v1/operations", body, token="operator"))

    def huge_forms(self):
        head = self.head(
            "POST", "/login/", "Content-Type: multipart/form-data; boundary=x",
            f"Content-Length: {700 * MIB}",
        )  # fmt: skip
        frame = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
        self.repeat(lambda: self.send(head, frame, *[bytes(MIB)] * 700))

    def guesses(self):
        numbers = iter(range(10**9))

        def guess():
            text = base64.b64encode(f"name{next(numbers)}:password".encode()).decode()
            self.post("/api/v1/tokens", b"{}", f"Authorization: Basic {text}")

        self.repeat(guess)


ATTACKS = {
    "silent connections": [Attacker.silent_connections],
    "half headers": [Attacker.half_headers],
    "slow bodies": [Attacker.slow_bodies],
    "slow uploads": [Attacker.slow_uploads],
    "responses that are not read": [Attacker.unread_responses],
    "exports": [Attacker.exports] * 8,
    "lists": [Attacker.lists] * 16,
    "unknown fields": [Attacker.unknown_fields] * 6,
    "unknown fields of an operator": [Attacker.unknown_fields_of_an_operator] * 4,
    "huge forms": [Attacker.huge_forms] * 2,
    "guesses": [Attacker.guesses] * 10,
}


@contextmanager
def attacked(names, *, port, tokens, operation_id):
    """Attack from a process of its own for the length of the block."""
    arguments = json.dumps([names, port, tokens, operation_id])
    process = subprocess.Popen([sys.executable, "-m", "tests.gateway.attacks", arguments], cwd=ROOT)
    try:
        yield
        assert process.poll() is None, "the attacker gave up"
    finally:
        process.kill()
        process.wait()


def main(arguments):
    names, *rest = json.loads(arguments)
    attacker = Attacker(*rest)
    for name in names:
        for what in ATTACKS[name]:
            threading.Thread(target=what, args=(attacker,)).start()


if __name__ == "__main__":
    main(sys.argv[1])
