"""Whether database, broker and storage answer, and after how many seconds."""

import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from apps.checkpoints import place, remote
from apps.checkpoints.trying import StorageFailed
from apps.installation import storages
from apps.installation.models import StorageBinding
from trainops.runtime.errors import StorageAway
from trainops.statement_timeout import at_most

SECONDS = 2.0
# A storage that hangs holds its thread until the kernel gives up; two, so that requests that come
# meanwhile hold no more than that.
_pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="ready")


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    problem: str = ""

    @property
    def is_ready(self) -> bool:
        return not self.problem


def parts() -> list[Part]:
    """Ask all parts at once; what does not answer in time counts as not ready."""
    broker = _pool.submit(_broker)
    if problem := _database():
        unknown = "the database does not respond, so the expected storage is unknown"
        return [
            Part("database", problem), Part("broker", _outcome(broker)), Part("storage", unknown)
        ]  # fmt: skip
    storage = _pool.submit(_storage, _expected_storage())
    return [
        Part("database"), Part("broker", _outcome(broker)), Part("storage", _outcome(storage))
    ]  # fmt: skip


def _outcome(future: "Future[str]") -> str:
    try:
        return future.result(timeout=SECONDS)
    except TimeoutError:
        future.cancel()
        return f"no response within {SECONDS:g} s"


def _database() -> str:
    try:
        with at_most(SECONDS), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        connection.close()
        return f"{type(error).__name__}: no response"
    return ""


def _broker() -> str:
    try:
        with redis_client(settings.BROKER_URL) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        return f"{type(error).__name__}: no response"
    return ""


def _expected_storage() -> StorageBinding | OSError:
    try:
        return storages.expect(place.here())
    except OSError as error:
        return error


def _storage(expected: StorageBinding | OSError) -> str:
    """Return why the storage is not ready. Runs in a thread, so it asks nothing of the database."""
    try:
        if isinstance(expected, OSError):
            raise expected
        storages.look(place.here(), expected)
        require_writable()
    except StorageFailed as error:
        return f"the bucket is not writable and readable: {error}"
    except StorageAway as error:
        return str(error)
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror or 'cannot be written'}"
    return ""


def require_writable() -> None:
    """Raise OSError unless checkpoints can be written, and read from a bucket."""
    settings.CHECKPOINT_ROOT.mkdir(parents=True, exist_ok=True)  # of a bucket: where it stages
    with tempfile.TemporaryFile(dir=settings.CHECKPOINT_ROOT) as file:
        file.write(b"ready")
    if settings.CHECKPOINT_BUCKET is not None:
        remote.probe(settings.CHECKPOINT_BUCKET)


def redis_client(broker_url: str) -> "redis.Redis":
    """Return a client with short timeouts; Celery's spelling of a unix socket is understood.

    Raises:
        ValueError: it is not an address of a Redis.
    """
    url = urlsplit(broker_url)
    options: dict[str, Any] = {
        "socket_connect_timeout": SECONDS / 2,
        "socket_timeout": SECONDS / 2,
        "retry": Retry(NoBackoff(), 0),
    }
    if url.scheme in ("redis+socket", "unix"):
        database = parse_qs(url.query).get("virtual_host", ["0"])[0]
        return redis.Redis(unix_socket_path=url.path, db=int(database), **options)
    return redis.Redis.from_url(broker_url, **options)
