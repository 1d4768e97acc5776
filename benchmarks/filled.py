"""Databases with many operations in them, each in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

BATCH = 2_000
STATES = ["COMPLETED"] * 90 + ["CANCELLED"] * 5 + ["FAILED"] * 4 + ["PENDING"]
ROOT = Path(__file__).resolve().parent.parent


def on_both_databases(module: str) -> dict[str, Any]:
    """Run a module once on a new SQLite and once on a new PostgreSQL; return what each printed."""
    results = {}
    for stack, server in {"sqlite": _sqlite, "postgresql": _postgresql}.items():
        with server() as environment:
            results[stack] = _printed_by(module, environment)
    return results


def on_postgresql(module: str, settings: Mapping[str, str]) -> Any:
    """Run a module on a new PostgreSQL with these settings; return what it printed."""
    with _postgresql() as environment:
        return _printed_by(module, {**environment, **settings})


def _printed_by(module: str, environment: dict[str, str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


@contextmanager
def _sqlite() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as directory:
        yield {"TRAINOPS_DATA_DIR": directory, "TRAINOPS_DATABASE_URL": ""}


@contextmanager
def _postgresql() -> Iterator[dict[str, str]]:
    from trainops.launch.servers import postgres_server

    with tempfile.TemporaryDirectory() as directory, postgres_server() as url:
        yield {"TRAINOPS_DATA_DIR": directory, "TRAINOPS_DATABASE_URL": url}


def set_up(*, is_new: bool = True) -> None:
    """Make this process Django's, on a database that is empty or was filled; without a broker."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "trainops.settings"
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    settings.DISPATCH_IS_ON = False
    if is_new:
        call_command("migrate", verbosity=0)


def fill(num_operations: int, *, states: list[str] = STATES, first: int = 0) -> Any:
    """Add operations, a few of them of a rare owner and tag; return the usual owner."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from apps.operations.models import Operation, Tag
    from apps.operations.points import latest_values
    from apps.operations.requests import services

    owner, _ = User.objects.get_or_create(username="bench", is_superuser=True, is_staff=True)
    rare, _ = User.objects.get_or_create(username="rare")
    template = services.submit(
        kind="training", config={"recipe": "digits", "epochs": 2}, owner=owner
    )
    moment = timezone.now()
    for begin in range(first, first + num_operations, BATCH):
        rows, tags = [], []
        for number in range(begin, min(begin + BATCH, first + num_operations)):
            row = Operation.objects.model(
                **{f.attname: getattr(template, f.attname) for f in Operation._meta.concrete_fields}
            )
            row.pk = f"op_training_20260101_000000_{number:06x}"
            row.name = f"operation number {number}"
            row.state = states[number * 7 % len(states)]
            row.owner_id = rare.pk if number % 1000 == 0 else owner.pk
            row.created_at = row.queued_at = moment - timedelta(seconds=number)
            row.step, row.total_steps, row.attempt = number % 100, 100, 1
            row.metrics = {"val_loss": number * 7919 % 100_003 / 1e5, "accuracy": 0.5}
            rows.append(row)
            names = ["usual"] * (number % 4 == 0) + ["rare"] * (number % 1000 == 0)
            tags += [Tag(operation_id=row.pk, name=name) for name in names]
        Operation.objects.bulk_create(rows)
        Tag.objects.bulk_create(tags)
    Operation.objects.filter(pk=template.pk).delete()
    while latest_values.write_missing():
        pass
    gather_statistics()
    return owner


def gather_statistics() -> None:
    """Do what autovacuum of PostgreSQL does after a minute; SQLite has no statistics, as in use."""
    from django.db import connection

    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")


def spread(seconds: list[float]) -> dict[str, float]:
    """Return milliseconds: the median and the 99th percentile."""
    ordered = sorted(seconds)
    return {
        "p50": round(1e3 * ordered[len(ordered) // 2], 3),
        "p99": round(1e3 * ordered[int(0.99 * (len(ordered) - 1))], 3),
    }
