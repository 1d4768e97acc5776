"""Charts of an operation with a million points, with 8 users, on SQLite and on PostgreSQL.

Requests go through the whole of Django, without a network in between: the users are threads of one
process, as in the web server. One operation measured a million points of one metric, another one a
million of 20 metrics.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from typing import Any

from benchmarks.filled import fill, gather_statistics, on_both_databases, set_up, spread

NUM_POINTS = 1_000_000
NUM_METRICS = 20
NUM_USERS = 8
NUM_REQUESTS = 15  # of each user and case
AT_ONCE = 100_000  # points of one statement, which has a timeout
NUM_WRITTEN = 100_000  # points whose writing is timed, with and without packs

CASES = {
    "page, whole": "/operations/{one}/live?points=0",
    "chart, whole": "/api/v1/operations/{one}/metrics",
    "chart, half": "/api/v1/operations/{one}/metrics?after_step=250000&to_step=750000",
    "chart, 100,000 points": "/api/v1/operations/{one}/metrics?after_step=333333&to_step=433333",
    "chart, 15,000 points": "/api/v1/operations/{one}/metrics?after_step=500000&to_step=515000",
    "chart, 1,500 points": "/api/v1/operations/{one}/metrics?after_step=500000&to_step=501500",
    "20 metrics, whole": "/api/v1/operations/{several}/metrics",
    "20 metrics, one of them": "/api/v1/operations/{several}/metrics?name=metric_7",
    "compare of 12": "/api/v1/operations/compare?ids={twelve}",
}


def main() -> dict[str, Any]:
    """Measure both stacks, print a table, and return the figures by stack."""
    results = on_both_databases("benchmarks.curves")
    print(f"\n{NUM_POINTS:,} points, {NUM_USERS} users, milliseconds a request")
    print(f"{'':28}" + "".join(f"{f'{stack} p50':>18}{'p99':>9}" for stack in results))
    for case in CASES:
        each = [result["milliseconds"][case] for result in results.values()]
        print(f"{case:28}" + "".join(f"{one['p50']:18.1f}{one['p99']:9.1f}" for one in each))
    for stack, result in results.items():
        print(f"{stack}: µs a point written, {result['writing']}")
    return results


def measure() -> dict[str, Any]:
    """Fill this process's database, then time the writing of points and every case."""
    set_up()
    from django.db import connection
    from django.test import Client

    owner = fill(100)
    from apps.operations.models import Operation

    ids = list(Operation.objects.order_by("pk").values_list("pk", flat=True)[:13])
    writing = _writing(ids[12])
    one, several, *others = ids[:12]
    add_curve(one, 1, NUM_POINTS)
    add_curve(several, NUM_METRICS, NUM_POINTS)
    for each in others:
        add_curve(each, 1, 20_000)
    gather_statistics()
    places = {"one": one, "several": several, "twelve": ",".join(ids[:12])}
    milliseconds = {}

    def ask(address: str) -> list[float]:
        client, seconds = Client(), []
        client.force_login(owner)
        for number in range(NUM_REQUESTS + 1):
            began = time.perf_counter()
            response = client.get(address)
            if response.status_code != 200:
                raise RuntimeError(f"{address}: {response.status_code} {response.content[:200]!r}")
            if number:
                seconds.append(time.perf_counter() - began)
        connection.close()
        return seconds

    for case, address in CASES.items():
        for users in (1, NUM_USERS):
            with ThreadPoolExecutor(users) as threads:
                found = threads.map(ask, [address.format(**places)] * users)
                seconds = [each for mine in found for each in mine]
            name = case if users > 1 else f"{case}, 1 user"
            milliseconds[name] = spread(seconds)
    return {"milliseconds": milliseconds, "writing": writing}


def add_curve(operation_id: str, num_metrics: int, num_points: int) -> None:
    """Add points of a new operation, and pack them."""
    from django.db import connection

    from apps.operations.points import packed_points

    at = {
        "sqlite": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 1767225600 + n / 1000.0, 'unixepoch')",
        "postgresql": "to_timestamp(1767225600 + n / 1000.0)",
    }[connection.vendor]
    with connection.cursor() as cursor:
        for first in range(0, num_points, AT_ONCE):
            cursor.execute(
                "WITH RECURSIVE numbers(n) AS (SELECT CAST(%s AS bigint)"  # noqa: S608
                " UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < %s)"
                " INSERT INTO operations_metricpoint"
                " (operation_id, attempt, name, step, value, not_finite, at)"
                " SELECT %s, 1, 'metric_' || (n %% %s), n / %s, (n * 7919 %% 1000003) / 1e6, '',"
                f" {at} FROM numbers",
                [first, min(first + AT_ONCE, num_points), operation_id, num_metrics, num_metrics],
            )
    packed_points.pack_all(operation_id)


def _writing(operation_id: str) -> dict[str, Any]:
    """Return µs for a written point, 200 at a time, without packs and with them."""
    from django.utils import timezone

    from apps.operations.attempts.report_writer import ReportWriter
    from apps.operations.models import Operation, PackedPoints
    from trainops.process.protocol import ProgressUpdate

    Operation.objects.filter(pk=operation_id).update(
        state="RUNNING", attempt=1, worker_id="w",
        lease_expires_at=timezone.now() + timedelta(hours=9),
    )  # fmt: skip
    writer = ReportWriter(Operation.objects.get(pk=operation_id))
    usual, steps = PackedPoints.MAX_UNPACKED, count()
    seconds: dict[str, list[float]] = {"without packs": [], "with packs": []}
    for number in range(NUM_WRITTEN // 10_000 * 2):
        which = "with packs" if number % 2 else "without packs"
        PackedPoints.MAX_UNPACKED = usual if number % 2 else 1 << 60
        began = time.process_time()
        for _ in range(50):
            points = tuple((next(steps), time.time(), {"loss": 0.5}) for _ in range(200))
            writer.progress(ProgressUpdate(points[-1][0], 10**9, "", points))
            writer.flush()
        seconds[which].append(time.process_time() - began)
        if number % 2 == 0:  # the next round packs its own points only
            PackedPoints.MAX_UNPACKED = usual
            from apps.operations.points import packed_points

            packed_points.pack_all(operation_id)
            writer.unpacked = None
    return {
        which: round(1e6 * sorted(each)[len(each) // 2] / 10_000, 1)
        for which, each in seconds.items()
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
