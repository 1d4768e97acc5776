"""Database, broker and storages."""

import time
from collections.abc import Iterator
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection

from apps.checkpoints import place, signing_keys
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.storage_remedies import remedy
from apps.datasets import storage as dataset_files
from apps.datasets.storage import PLACE as DATASETS
from apps.installation import schema, storages
from apps.operations.scheduling import readiness
from apps.workers.diagnosis.findings import Diagnosis
from apps.workers.models import LOCAL, Worker
from trainops.paths import COMMAND
from trainops.signature_settings import VARIABLE

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


def signatures() -> Iterator[Diagnosis]:
    """Whether checkpoints are signed here, and all processes accept the signatures."""
    num_unsigned = Checkpoint.objects.filter(signature="").count()
    if not signing_keys.is_enrolled_now():
        yield Diagnosis.problem(
            "this machine has another secret key than the installation, or none was recorded: it "
            f"signs no checkpoints{_claims_nothing()}; its key is {signing_keys.own_key()}",
            "Give it the secret_key of the first machine. If that was lost: "
            f"{COMMAND} signing-keys enroll",
        )
    elif num_unsigned and settings.REQUIRE_SIGNATURES:
        yield Diagnosis.problem(
            f"{num_unsigned} checkpoints are not signed, which {VARIABLE}=1 refuses",
            f"{COMMAND} signing-keys sign",
        )
    else:
        number = f"; {num_unsigned} checkpoints are not signed" if num_unsigned else ""
        yield Diagnosis.ok(f"checkpoints are signed{number}")


def _claims_nothing() -> str:
    return f", and claims nothing ({VARIABLE}=1)" if settings.REQUIRE_SIGNATURES else ""


def storage() -> Iterator[Diagnosis]:
    for where, require_writable in (
        (place.here(), readiness.require_writable),
        (DATASETS, dataset_files.require_writable),
    ):
        try:
            storages.look(where, storages.expect(where))
        except OSError as error:
            yield Diagnosis.problem(f"the storage of {where.name}: {error}", remedy(error))
            continue
        try:
            require_writable()
        except OSError as error:
            yield Diagnosis.problem(f"{where.name} cannot be written: {error}", remedy(error))
        else:
            yield Diagnosis.ok(f"{where.name} are in {where.location}")
    yield from _shared()


def _shared() -> Iterator[Diagnosis]:
    hosts = set(Worker.objects.filter(worker_type=LOCAL).values_list("host", flat=True))
    if connection.vendor == "sqlite" and len(hosts) > 1:
        yield Diagnosis.problem(
            f"workers on {len(hosts)} hosts use one SQLite file ({', '.join(sorted(hosts)[:5])})",
            f"Move to PostgreSQL ({URL}): file locks over a network lose writes.",
        )
