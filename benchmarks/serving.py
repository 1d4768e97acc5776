"""Requests a second and latency of the web server with 1, 20 and 200 open connections.

The same application under the server that we use and under others, turn by turn in one run. All
connections stay open and take turns; at most eight requests are in flight, the other connections
rest. The servers that are not ours are measured where TRAINOPS_BENCH_SERVERS names a directory
made by `pip install --target DIRECTORY gunicorn uvicorn httptools uvloop`.
"""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.filled import ROOT, fill, on_both_databases, set_up, spread

NUM_OPERATIONS, NUM_ROUNDS, NUM_REQUESTS, IN_FLIGHT = 2_000, 3, 200, 8
OPEN = (1, 20, 200)
PAGES = {"list": "/", "operation": "/operations/{one}/", "API": "/api/v1/operations/{one}"}
OURS = [sys.executable, "-m", "trainops.web", "--port", "{port}"]
OTHERS = {
    "granian, WSGI": [
        sys.executable, "-m", "granian", "--interface", "wsgi", "--blocking-threads", "8",
        "--backpressure", "1024", "--no-ws", "--port", "{port}", "trainops.wsgi:application",
    ],
    "gunicorn, gthread": [
        sys.executable, "-m", "gunicorn", "--worker-class", "gthread", "--threads", "8",
        "--worker-connections", "1024", "--keep-alive", "60",
        "--bind", "127.0.0.1:{port}", "trainops.wsgi:application",
    ],
    "uvicorn, our gateway": [
        sys.executable, "-m", "uvicorn", "--factory", "--log-level", "warning",
        "--timeout-keep-alive", "60",
        "--port", "{port}", "trainops.web:application",
    ],
}  # fmt: skip


def main() -> dict[str, Any]:
    """Measure on both databases, print a table; return figures by database, server and case."""
    results = on_both_databases("benchmarks.serving")
    for database, servers in results.items():
        print(f"\n{database}: requests a second (p99 in milliseconds), median of {NUM_ROUNDS} runs")
        for name, cases in servers.items():
            figures = "".join(
                f"{case:>16}: {each['per_second']:6.0f} ({each['p99']:5.0f})"
                for case, each in cases.items()
            )
            print(f"{name:24}{figures}")
    return results


def measure() -> dict[str, Any]:
    set_up()
    from django.test import Client

    from apps.operations.models import Operation

    client = Client()
    client.force_login(fill(NUM_OPERATIONS))
    one = Operation.objects.values_list("pk", flat=True)[0]
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    runs: dict[str, dict[str, list[Any]]] = {}
    for _ in range(NUM_ROUNDS):
        for name, command in servers().items():
            with serving(command) as port:
                for page, path in PAGES.items():
                    for num_open in OPEN:
                        seconds = asyncio.run(load(port, path.format(one=one), [cookie], num_open))
                        runs.setdefault(name, {}).setdefault(f"{page} {num_open}", []).append(
                            {"per_second": round(NUM_REQUESTS / seconds[0])} | spread(seconds[1])
                        )
    return {
        name: {case: sorted(each, key=lambda run: run["per_second"])[len(each) // 2]
               for case, each in cases.items()}
        for name, cases in runs.items()
    }  # fmt: skip


def servers() -> dict[str, list[str]]:
    return {"ours": OURS} | (OTHERS if os.environ.get("TRAINOPS_BENCH_SERVERS") else {})


@contextmanager
def serving(command: list[str]) -> Iterator[int]:
    """Run a server on a free port until it answers; stop it with all that it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = [
        each for name in ("TRAINOPS_BENCH_SERVERS", "PYTHONPATH") if (each := os.environ.get(name))
    ]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TRAINOPS_LOG_LEVEL": "ERROR"}
    process = subprocess.Popen(
        [part.format(port=port) for part in command],
        cwd=ROOT, env=env, start_new_session=True, stdout=sys.stderr,
    )  # fmt: skip
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def load(
    port: int,
    path: str,
    cookies: list[str],
    num_open: int,
    *,
    num_requests: int = NUM_REQUESTS,
    num_warm: int = 20,
) -> tuple[float, list[float]]:
    """Return the seconds of all requests together, and of each; connections share the cookies."""
    resting: asyncio.Queue[Any] = asyncio.Queue()
    for number in range(num_open):
        request = _request(path, cookies[number % len(cookies)])
        resting.put_nowait((request, *await asyncio.open_connection("127.0.0.1", port)))
    gate, seconds = asyncio.Semaphore(IN_FLIGHT), []

    async def one() -> None:
        async with gate:
            request, reader, writer = await resting.get()
            began_at = time.perf_counter()
            writer.write(request)
            await read_response(reader)
            seconds.append(time.perf_counter() - began_at)
            resting.put_nowait((request, reader, writer))

    await asyncio.gather(*(one() for _ in range(num_warm)))
    seconds.clear()
    began_at = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(num_requests)))
    total = time.perf_counter() - began_at
    while not resting.empty():
        resting.get_nowait()[2].close()
    return total, seconds


async def people(
    port: int, path: str, cookies: list[str], *, num_each: int, pause: float, num_warm: int = 1
) -> list[float]:
    """Return the seconds of the requests of people who look at each page before the next.

    One person for each cookie, with a connection of their own and `num_each` requests; `pause`: the
    mean seconds between an answer and the next request, drawn between half and one and a half.
    """
    chance, seconds = random.Random(1), []

    async def one(cookie: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(num_warm + num_each):
            await asyncio.sleep(pause * chance.uniform(0.5, 1.5))
            began_at = time.perf_counter()
            writer.write(_request(path, cookie))
            await read_response(reader)
            if number >= num_warm:
                seconds.append(time.perf_counter() - began_at)
        writer.close()

    await asyncio.gather(*(one(cookie) for cookie in cookies))
    return seconds


def _request(path: str, cookie: str) -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n"
    return f"{head}Cookie: {cookie}\r\n\r\n".encode()


async def read_response(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise RuntimeError(head.decode())
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))


if __name__ == "__main__":
    print(json.dumps(measure()))
