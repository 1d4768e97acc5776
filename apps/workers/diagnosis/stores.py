"""Database, broker and storages."""

import time
from collections.abc import Iterator
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection

from apps.checkpoints import place
from apps.datasets.storage import PLACE as DATASETS
from apps.installation import schema, storages
from apps.operations.scheduling import readiness
from apps.workers.diagnosis.findings import Diagnosis
from apps.workers.models import LOCAL, Worker

SLOW_SECONDS = 0.1
URL = "TRAINOPS_DATABASE_URL"


def database() -> Iterator[Diagnosis]:
    began_at = time.monotonic()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        first = str(error).strip().partition("\n")[0]
        remedy = f"Start the database, or correct {URL}."
        yield Diagnosis.problem(f"{connection.vendor} does not respond: {first}", remedy)
        return
    took = time.monotonic() - began_at
    version = getattr(connection, "pg_version", None)
    name = f"PostgreSQL {version // 10_000}" if version else "SQLite"
    if took > SLOW_SECONDS:
        yield Diagnosis.warning(
            f"{name} took {took * 1000:.0f} ms to answer",
            "Use a database near to the workers: each renewal and claim waits for it.",
        )
    else:
        yield Diagnosis.ok(f"{name} answers in {took * 1000:.1f} ms")


def migrations() -> Iterator[Diagnosis]:
    missing, newer = schema.pending(), schema.unknown()
    if any(map(schema.is_contract, newer)):
        yield Diagnosis.problem(
            f"the database was changed by a newer trainops ({schema.listed(newer)})",
            "Update trainops here.",
        )
    elif newer and not missing:
        yield Diagnosis.warning(
            f"the database was changed by a newer trainops ({schema.listed(newer)}), with which "
            "this version works",
            "Complete the upgrade: update trainops here (docs/upgrading.md).",
        )
    elif missing:
        yield Diagnosis.problem(
            f"{len(missing)} migrations are missing",
            "Start this version on the first machine, or run: python -m trainops.launch.prepare",
        )
    else:
        yield Diagnosis.ok("all migrations are applied")


def broker() -> Iterator[Diagnosis]:
    remedy = "Start Redis (`up` starts its own), or correct TRAINOPS_BROKER_URL."
    try:
        with readiness.redis_client(settings.BROKER_URL) as client:
            client.ping()
            policy = _memory_policy(client)
    except (redis.RedisError, OSError, ValueError) as error:
        yield Diagnosis.problem(f"the broker does not respond: {error}", remedy)
        return
    if policy not in ("noeviction", ""):
        yield Diagnosis.warning(
            f"Redis may discard messages when its memory is full (maxmemory-policy {policy})",
            "Set maxmemory-policy noeviction. Lost messages delay a start by some seconds.",
        )
    else:
        yield Diagnosis.ok("Redis answers")


def _memory_policy(client: "redis.Redis") -> str:
    """Return the policy; empty where the server does not tell."""
    try:
        found: Any = client.config_get("maxmemory-policy")
    except redis.RedisError:
        return ""
    value = next(iter(found.values()), "")
    return value.decode() if isinstance(value, bytes) else str(value)


def storage() -> Iterator[Diagnosis]:
    remedy = (
        "Mount the storage of this installation, or correct TRAINOPS_CHECKPOINT_STORAGE and "
        "TRAINOPS_DATA_DIR. To use another installation's: up --take-over-storage."
    )
    for name, where in (("checkpoints", place.here()), ("datasets", DATASETS)):
        try:
            storages.look(where, storages.expect(where))
        except OSError as error:
            yield Diagnosis.problem(f"the storage of {name}: {error}", remedy)
        else:
            yield Diagnosis.ok(f"{name} are in {where.location}")
    if problem := next((each.problem for each in readiness.parts() if each.name == "storage"), ""):
        yield Diagnosis.problem(f"checkpoints cannot be written: {problem}", remedy)
    yield from _shared()


def _shared() -> Iterator[Diagnosis]:
    hosts = set(Worker.objects.filter(worker_type=LOCAL).values_list("host", flat=True))
    if connection.vendor == "sqlite" and len(hosts) > 1:
        yield Diagnosis.problem(
            f"workers on {len(hosts)} hosts use one SQLite file ({', '.join(sorted(hosts)[:5])})",
            f"Move to PostgreSQL ({URL}): file locks over a network lose writes.",
        )
