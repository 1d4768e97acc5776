"""The list API with 100 000 operations, on SQLite and on PostgreSQL: median and 99th percentile.

Each stack is measured in a process of its own, through the whole of Django (middleware, session,
role, view, JSON), without a network in between. Requests of all cases take turns, so that a busy
machine disturbs all of them alike.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

NUM_OPERATIONS = 100_000
NUM_ROUNDS = 200
BATCH = 2_000
STATES = ["COMPLETED"] * 90 + ["CANCELLED"] * 5 + ["FAILED"] * 4 + ["PENDING"]
ROOT = Path(__file__).resolve().parent.parent

CASES = {
    "first page": "/api/v1/operations",
    "a page in the middle": "/api/v1/operations?created_before={middle}",
    "one page of 500": "/api/v1/operations?limit=500",
    "state=FAILED": "/api/v1/operations?state=FAILED",
    "owner": "/api/v1/operations?owner=rare",
    "tag": "/api/v1/operations?tag=rare",
    "resumable": "/api/v1/operations?resumable=true",
    "search, found": "/api/v1/operations?search=number+50000",
    "search, not found": "/api/v1/operations?search=nothing+like+it",
    "with a count": "/api/v1/operations?count=true",
    "one operation": "/api/v1/operations/{one}",
    "live": "/api/v1/operations/{one}/live?points_after=0&events_after=0&log_after=0",
    "admin list": "/admin/operations/operation/",
}


def main() -> dict[str, Any]:
    """Measure both stacks, print one table, and return milliseconds by stack and case."""
    results = {}
    for stack, server in {"sqlite": _sqlite, "postgresql": _postgresql}.items():
        with server() as environment:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.lists"],
                cwd=ROOT,
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                check=True,
            )
        results[stack] = json.loads(done.stdout)
    _print(results)
    return {"num_operations": NUM_OPERATIONS, "milliseconds": results}


@contextmanager
def _sqlite() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as directory:
        yield {"TRAINOPS_DATA_DIR": directory, "TRAINOPS_DATABASE_URL": ""}


@contextmanager
def _postgresql() -> Iterator[dict[str, str]]:
    from trainops.launch.servers import postgres_server

    with tempfile.TemporaryDirectory() as directory, postgres_server() as url:
        yield {"TRAINOPS_DATA_DIR": directory, "TRAINOPS_DATABASE_URL": url}


def _print(results: dict[str, Any]) -> None:
    print(f"\nList API with {NUM_OPERATIONS:,} operations, milliseconds a request")
    print(f"{'':24}" + "".join(f"{f'{stack} p50':>18}{'p99':>9}" for stack in results))
    for case in CASES:
        figures = "".join(
            f"{each[case]['p50']:18.2f}{each[case]['p99']:9.2f}" for each in results.values()
        )
        print(f"{case:24}{figures}")


def measure() -> dict[str, dict[str, float]]:
    """Fill this process's database, then time every case."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "trainops.settings"
    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.test import Client

    settings.DISPATCH_IS_ON = False  # no broker runs here
    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(_filled())
    places = _places()
    addresses = {case: address.format(**places) for case, address in CASES.items()}
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    for number in range(NUM_ROUNDS + 1):
        for case, address in addresses.items():
            began = time.perf_counter()
            response = client.get(address)
            elapsed = time.perf_counter() - began
            if response.status_code != 200:
                raise RuntimeError(f"{address}: {response.status_code} {response.content[:200]!r}")
            if number:  # the first round warms up
                seconds[case].append(elapsed)
    return {case: _figures(each) for case, each in seconds.items()}


def _filled() -> Any:
    from django.contrib.auth.models import User
    from django.db import connection
    from django.utils import timezone

    from apps.operations import services
    from apps.operations.models import Operation, Tag

    owner = User.objects.create_superuser("bench")
    rare = User.objects.create_user("rare")
    template = services.submit(
        kind="training", config={"recipe": "digits", "epochs": 2}, owner=owner
    )
    moment = timezone.now()
    for first in range(0, NUM_OPERATIONS, BATCH):
        rows, tags = [], []
        for number in range(first, first + BATCH):
            row = Operation.objects.model(
                **{f.attname: getattr(template, f.attname) for f in Operation._meta.concrete_fields}
            )
            row.pk = f"op_training_20260101_000000_{number:06x}"
            row.name = f"operation number {number}"
            row.state = STATES[number * 7 % len(STATES)]
            row.owner_id = rare.pk if number % 1000 == 0 else owner.pk
            row.created_at = row.queued_at = moment - timedelta(seconds=number)
            row.step, row.total_steps, row.metrics = number % 100, 100, {"val_loss": 0.5}
            rows.append(row)
            names = ["usual"] * (number % 4 == 0) + ["rare"] * (number % 1000 == 0)
            tags += [Tag(operation_id=row.pk, name=name) for name in names]
        Operation.objects.bulk_create(rows)
        Tag.objects.bulk_create(tags)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # what autovacuum does after a minute
    return owner


def _places() -> dict[str, str]:
    from apps.operations.models import Operation

    middle = Operation.objects.get(name=f"operation number {NUM_OPERATIONS // 2}")
    return {"one": middle.pk, "middle": middle.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _figures(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50": round(1e3 * ordered[len(ordered) // 2], 3),
        "p99": round(1e3 * ordered[int(0.99 * (len(ordered) - 1))], 3),
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
