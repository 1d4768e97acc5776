import socket
import threading

import pytest

from tests.cli.conftest import ana, cli, environment  # noqa: F401 - fixtures


class Scripted:
    """A server that answers one connection after another with the bytes of a script."""

    def __init__(self, *answers: bytes):
        self.requests: list[bytes] = []
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        for answer in self._answers:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.requests.append(self._read(connection))
                connection.sendall(answer)

    def _read(self, connection):
        read = b""
        while b"\r\n\r\n" not in read:
            read += connection.recv(65536)
        head, _, body = read.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                while len(body) < int(line.split(b":")[1]):
                    body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self):
        self._socket.close()


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.fixture
def scripted():
    servers = []

    def scripted(*answers: bytes) -> Scripted:
        servers.append(Scripted(*answers))
        return servers[-1]

    yield scripted
    for each in servers:
        each.close()
