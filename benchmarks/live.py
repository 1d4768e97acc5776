"""What live pages cost: delay of updates, and CPU of the web server, with many viewers.

A running operation is changed as a worker changes it (progress, a point, a line of the log), twice
a second. Viewers follow its page by event streams, or poll it as a page without streams does; each
is another person. The delay of an update is the time from its commit until the client has the
complete answer that contains it. Changes are made by a process of their own.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psutil

from benchmarks.filled import ROOT, fill, on_both_databases, set_up
from benchmarks.serving import OURS, serving

NUM_VIEWERS, NUM_OPERATIONS = 100, 2_000
SECONDS, CHANGE_SECONDS, POLL_SECONDS, WARM_SECONDS = 20.0, 0.5, 1.5, 5.0
CASES = {
    "streams, one operation": {"streams": True, "operations": 1},
    "polling, one operation": {"streams": False, "operations": 1},
    "streams, 100 operations": {"streams": True, "operations": NUM_VIEWERS},
    "polling, 100 operations": {"streams": False, "operations": NUM_VIEWERS},
}


def main() -> dict[str, Any]:
    """Measure on both databases, print a table; return figures by database and case."""
    results = on_both_databases("benchmarks.live")
    for database, cases in results.items():
        print(f"\n{database}: {NUM_VIEWERS} viewers, {1 / CHANGE_SECONDS:.0f} changes a second")
        for name, each in cases.items():
            print(
                f"{name:26} delay p50 {each['p50']:6.0f} ms, p99 {each['p99']:6.0f} ms, "
                f"web CPU {each['cpu_percent']:4.0f} %, {each['updates']} updates"
            )
    return results


def measure() -> dict[str, Any]:
    set_up()
    fill(NUM_OPERATIONS)
    cookies, operations = viewers(), running(NUM_VIEWERS)
    found = {}
    for name, case in CASES.items():
        with serving(OURS) as port:
            chosen = operations[: case["operations"]]
            found[name] = asyncio.run(
                measured(port, cookies, chosen, is_stream=bool(case["streams"]))
            )
    return found


def viewers() -> list[str]:
    """Return a session of each of NUM_VIEWERS people, as a cookie."""
    from django.contrib.auth.models import Group, User
    from django.test import Client

    cookies = []
    for number in range(NUM_VIEWERS):
        person = User.objects.create_user(f"viewer{number}")
        person.groups.add(Group.objects.get(name="viewer"))
        client = Client()
        client.force_login(person)
        cookies.append(f"sessionid={client.cookies['sessionid'].value}")
    return cookies


def running(number: int) -> list[str]:
    """Return operations that run, as far as their rows say."""
    from datetime import timedelta

    from django.utils import timezone

    from apps.operations.models import Operation

    chosen = list(Operation.objects.values_list("pk", flat=True)[:number])
    later = timezone.now() + timedelta(hours=1)
    Operation.objects.filter(pk__in=chosen).update(
        state="RUNNING", attempt=1, lease_expires_at=later, step=0, total_steps=10**6
    )
    return chosen


def change(operations: list[str]) -> dict[str, dict[int, float]]:
    """Change operations until the standard input ends; return the moment of each commit.

    Moments are by path and step, on the clock of all processes of the machine.
    """
    import django
    from django.utils import timezone

    os.environ["DJANGO_SETTINGS_MODULE"] = "trainops.settings"
    django.setup()
    from apps.operations.models import LogChunk, MetricPoint, Operation

    step = 1_000 * (1 + max(MetricPoint.objects.count(), LogChunk.objects.count()))
    committed_at: dict[str, dict[int, float]] = {path_of(pk): {} for pk in operations}
    is_over = threading.Event()
    threading.Thread(target=_wait_for_end, args=[is_over], daemon=True).start()
    while not is_over.wait(CHANGE_SECONDS):
        step += 1
        for pk in operations:
            Operation.objects.filter(pk=pk).update(step=step, progressed_at=timezone.now())
            MetricPoint.objects.create(
                operation_id=pk, attempt=1, name="loss", step=step, value=1.0, at=timezone.now()
            )
            LogChunk.objects.create(operation_id=pk, attempt=1, text="a line\n")
            committed_at[path_of(pk)][step] = time.monotonic()
    return committed_at


def path_of(operation_id: str) -> str:
    return f"/operations/{operation_id}/live"


@dataclass
class Viewer:
    """One page that is open."""

    path: str
    have: str = "header:,progress:,stats:,error:,attempts:,events:,explanation:,files:"
    points: int = 0
    num_bytes: int = 0
    seen: list[tuple[int, float]] = field(default_factory=list)  # step, moment

    def show(self, text: bytes) -> None:
        answer = json.loads(text)
        self.num_bytes += len(text)
        steps = [step for each in answer["points"]["series"] for step in each["steps"]]
        self.seen += [(step, time.monotonic()) for step in steps]
        have = dict(part.split(":") for part in self.have.split(",") if part)
        have |= {name: part["digest"] for name, part in answer["parts"].items()}
        self.have = ",".join(f"{name}:{digest}" for name, digest in have.items())
        self.points = answer["points"]["last"]

    async def poll(self, port: int, cookie: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(POLL_SECONDS * int.from_bytes(os.urandom(2)) / 2**16)
        while True:
            address = f"{self.path}?have={self.have}&points={self.points}"
            writer.write(request(address, cookie, ""))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.show(await reader.readexactly(int(length)))
            await asyncio.sleep(POLL_SECONDS)

    async def follow(self, port: int, cookie: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        address = f"{self.path}?have={self.have}&points={self.points}"
        writer.write(request(address, cookie, "Accept: text/event-stream\r\n"))
        head = await reader.readuntil(b"\r\n\r\n")
        if b"event-stream" not in head:
            raise RuntimeError(head.decode())
        while line := await reader.readline():
            if line.startswith(b"data: "):
                self.show(line[6:])


def request(address: str, cookie: str, more: str) -> bytes:
    lines = f"GET {address} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n{more}\r\n"
    return lines.encode()


async def measured(
    port: int, cookies: list[str], operations: list[str], *, is_stream: bool
) -> dict[str, Any]:
    pages = [Viewer(path_of(operations[number % len(operations)])) for number in range(NUM_VIEWERS)]
    opened = [
        (page.follow if is_stream else page.poll)(port, cookie)
        for page, cookie in zip(pages, cookies, strict=True)
    ]
    tasks = [asyncio.ensure_future(each) for each in opened]
    changes = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.live", *operations,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, limit=2**24,
    )  # fmt: skip
    while not all(page.seen for page in pages):
        await asyncio.wait(tasks, timeout=0.1, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    await asyncio.sleep(WARM_SECONDS)  # until the server has answered all that were opened at once
    for page in pages:
        page.seen.clear()
    web = web_processes()
    began_at, before = time.monotonic(), cpu_seconds(web)
    await asyncio.sleep(SECONDS)
    seconds, used = time.monotonic() - began_at, cpu_seconds(web) - before
    committed_at, _ = await changes.communicate(b"")
    for task in tasks:
        task.cancel()
    return figures(pages, json.loads(committed_at), began_at) | {
        "cpu_percent": 100 * used / seconds
    }


def figures(
    pages: list[Viewer], committed_at: dict[str, dict[str, float]], began_at: float
) -> dict[str, Any]:
    """Return milliseconds from the commit of each change since then until a page has shown it."""
    moments = [
        (committed_at[page.path][str(step)], at)
        for page in pages
        for step, at in page.seen
        if str(step) in committed_at[page.path]
    ]
    delays = sorted(1000 * (at - committed) for committed, at in moments if committed >= began_at)
    return {
        "p50": delays[len(delays) // 2],
        "p99": delays[int(len(delays) * 0.99)],
        "updates": len(delays),
        "kib": sum(page.num_bytes for page in pages) // 1024,
    }


def web_processes() -> list[psutil.Process]:
    mine = psutil.Process().children(recursive=True)
    return [each for each in mine if "trainops.web" in each.cmdline()]


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in processes)


def _wait_for_end(is_over: threading.Event) -> None:
    sys.stdin.read()
    is_over.set()


if __name__ == "__main__":
    print(json.dumps(change(sys.argv[1:]) if sys.argv[1:] else measure()))
